// What relative positions add to the scores of attention, and what the gradients of scores come to for each row of
// their tables.
//
// A block has its own rows, which are queries or (OWN_ARE_KEYS) keys, and goes through those of the other side in
// squares, whose rows are its own. The row of the tables for a query and a key depends on their distance alone, so a
// square of N by N has 2 N - 1 of them, noted once. It never falls as the distance grows: keys that share it with a
// query stand side by side. The gradients of such a run are added up by the thread that has its first column, in the
// order of the columns, and written once; a run that goes on in the next square is carried there.

struct RelativeArgs : Args {
    const void* by_query;  // [H, T, stride]: what queries say of the rows of the tables; null without that term
    const void* by_key;    // the same of keys
    void* d_by_query;      // [H, T, stride]: gradients of both
    void* d_by_key;
    const u32* table_rows;  // of the distances -(places - 1) to places - 1
    i64 tokens;
    i64 stride;   // a multiple of 8
    u32 places;
    u32 first;    // the row of the tables that stands in column 0 of what is said
};

constexpr u32 NOWHERE = 0xffffffff;

// Of each row of a square the run that is not at its end: its row of the tables, and the sum so far.
template <int SIDE>
struct Carried {
    u32 place[SIDE];
    float sum[SIDE];
};

// A square of own rows from `own` on and others from `other` on, all counted in the segment. The tables' rows of
// its distances are in `places`, [2 SIDE - 1].
template <typename T, bool OWN_ARE_KEYS, int SIDE>
struct PositionSquare {
    const RelativeArgs& a;
    const Tile& tile;
    u32 own, other;
    u32* places;

    __device__ __forceinline__ u32 size() const { return tile.end - tile.start; }
    __device__ __forceinline__ bool holds(u32 row, u32 column) const { return own + row < size() && other + column < size(); }
    __device__ __forceinline__ static u32 index(u32 row, u32 column) {
        return OWN_ARE_KEYS ? SIDE - 1 + column - row : SIDE - 1 + row - column;
    }
    // Notes the tables' rows, by `COUNT` threads. Those of distances that no two rows of the segment have mean nothing.
    template <u32 COUNT>
    __device__ __forceinline__ void look(u32 thread) const {
        for (u32 i = thread; i < 2 * SIDE - 1; i += COUNT) {
            int distance = (OWN_ARE_KEYS ? int(other) - int(own) : int(own) - int(other)) + int(i) - (SIDE - 1);
            int last = int(a.places) - 1;
            places[i] = a.table_rows[max(-last, min(last, distance)) + last] - a.first;
        }
    }
    // Where the values of a row of the segment begin, in what either side says.
    template <typename V>
    __device__ __forceinline__ V* of_row(V* all, u32 row) const {
        return all + (i64(blockIdx.y) * a.tokens + tile.start + row) * a.stride;
    }
    __device__ __forceinline__ T* sums() const { return static_cast<T*>(OWN_ARE_KEYS ? a.d_by_key : a.d_by_query); }
    // What own rows, or those of the other side, say: 0 where they say nothing, or a row is beyond the segment.
    template <bool OWN>
    __device__ __forceinline__ float said(u32 row, u32 column) const {
        const T* all = static_cast<const T*>(OWN == OWN_ARE_KEYS ? a.by_key : a.by_query);
        if (!all || !holds(row, column)) return 0.0f;
        return widen(of_row(all, OWN ? own + row : other + column)[places[index(row, column)]]);
    }
    // Zeros for the gradients of `count` own rows: not every distance is met by each of them.
    template <u32 COUNT>
    __device__ __forceinline__ void clear(u32 thread, u32 count) const {
        constexpr u32 WIDTH = WIDE<T>;
        if (!sums()) return;
        u32 pieces = u32(a.stride) / WIDTH;
        for (u32 i = thread; i < count * pieces; i += COUNT) {
            if (own + i / pieces >= size()) return;
            store_whole<T, WIDTH>(of_row(sums(), own + i / pieces) + i % pieces * WIDTH, Vec<T, WIDTH>{});
        }
    }
    // Adds gradients of scores up, [SIDE][SIDE + 1], rounded as those that meet contents.
    template <u32 COUNT>
    __device__ __forceinline__ void collect(const float (*values)[SIDE + 1], Carried<SIDE> (&carried)[2], u32 thread) const {
        if (!sums()) return;
        const u32 columns = min(size() - other, u32(SIDE));
        const bool is_first = other == 0, is_last = size() - other <= SIDE;
        const Carried<SIDE>& from = carried[other / SIDE % 2];
        Carried<SIDE>& to = carried[other / SIDE % 2 ^ 1];
        for (u32 i = thread; i < SIDE * SIDE; i += COUNT) {
            u32 row = i / SIDE, column = i % SIDE;
            if (!holds(row, column)) continue;
            T* out = of_row(sums(), own + row);
            u32 place = places[index(row, column)];
            float sum = 0.0f;
            if (column > 0) {
                if (places[index(row, column - 1)] == place) continue;
            } else if (!is_first) {
                if (from.place[row] == place) {
                    sum = from.sum[row];
                } else {
                    out[from.place[row]] = narrow<T>(from.sum[row] * a.scale);
                }
            }
            do {
                sum += values[row][column++];
            } while (column < columns && places[index(row, column)] == place);
            if (column < columns || is_last) {
                out[place] = narrow<T>(sum * a.scale);
            } else {
                to.place[row] = place, to.sum[row] = sum;
            }
        }
    }
};

// Behind the room of the plain kernels.
struct PlainPlaces {
    u32 places[2 * ROWS];
    Carried<ROWS> carried[2];
};
static_assert(sizeof(PlainPlaces) == 1536, "as in cuda.rs");

template <typename T>
struct PlainPositions<T, RelativeArgs> {
    static constexpr bool ARE_THERE = true;
    static constexpr u32 THREADS = EDGE * EDGE;
    const RelativeArgs& a;
    const Tile& tile;

    __device__ __forceinline__ PlainPlaces& room() const { return *reinterpret_cast<PlainPlaces*>(shared_memory() + sizeof(PlainRoom)); }
    template <bool OWN_ARE_KEYS>
    __device__ __forceinline__ PositionSquare<T, OWN_ARE_KEYS, ROWS> square(u32 other) const {
        return {a, tile, tile.first - tile.start, other, room().places};
    }
    // Every block of a wide head sums the same: one writes it.
    template <bool OWN_ARE_KEYS>
    __device__ __forceinline__ void begin() const {
        if (blockIdx.z == 0) square<OWN_ARE_KEYS>(0).template clear<THREADS>(threadIdx.x, ROWS);
    }
    template <bool OWN_ARE_KEYS>
    __device__ __forceinline__ void look(u32 other) const {
        square<OWN_ARE_KEYS>(other).template look<THREADS>(threadIdx.x);
    }
    template <bool OWN_ARE_KEYS>
    __device__ __forceinline__ float said(u32 row, u32 column, u32 other) const {
        auto at = square<OWN_ARE_KEYS>(other);
        return at.template said<true>(row, column) + at.template said<false>(row, column);
    }
    template <bool OWN_ARE_KEYS>
    __device__ __forceinline__ void collect(const float (*values)[ROWS + 1], u32 other) const {
        if (blockIdx.z == 0) square<OWN_ARE_KEYS>(other).template collect<THREADS>(values, room().carried, threadIdx.x);
    }
};

constexpr int SIDE = 16;  // of what a warp has in hand on tensor cores

// Of each warp, behind all else. One column of padding keeps a column's values in different banks.
struct WarpPlaces {
    float values[SIDE][SIDE + 1];
    u32 places[2 * SIDE];
    Carried<SIDE> carried[2];
};
static_assert(4 * sizeof(WarpPlaces) == 5888, "as in cuda.rs");

template <typename T>
struct TensorPositions<T, RelativeArgs> {
    static constexpr bool ARE_THERE = true;
    const RelativeArgs& a;
    const Tile& tile;
    WarpPlaces& room;
    u32 own;
    Lane lane;

    __device__ __forceinline__ TensorPositions(const RelativeArgs& a, const Tile& tile, void* all, u32 own)
        : a(a), tile(tile), room(static_cast<WarpPlaces*>(all)[threadIdx.x / WARP]), own(own) {}
    template <bool OWN_ARE_KEYS>
    __device__ __forceinline__ PositionSquare<T, OWN_ARE_KEYS, SIDE> square(u32 other) const {
        return {a, tile, own, other, room.places};
    }
    // The row of the square for value `i` of a tile of C.
    __device__ __forceinline__ float& value(int n, int i) const {
        return room.values[lane.row + i / 2 * 8][n * 8 + lane.column + i % 2];
    }
    template <bool OWN_ARE_KEYS>
    __device__ __forceinline__ void begin() const {
        square<OWN_ARE_KEYS>(0).template clear<WARP>(lane.lane, SIDE);
    }
    // Adds what is said to scores of 16 own rows and the 16 others from `other` on. A row says it of places side by
    // side: lanes go along its row, for own rows in the order of rows, for the others in that of columns, all loads
    // before the first of them is waited for.
    template <bool OWN_ARE_KEYS>
    __device__ __forceinline__ void add(float (&scores)[2][4], u32 other) const {
        constexpr int EACH = SIDE * SIDE / int(WARP);
        auto at = square<OWN_ARE_KEYS>(other);
        at.template look<WARP>(lane.lane);
        __syncwarp();
        const u32 along = lane.lane % SIDE, across = lane.lane / SIDE;
        float by_own[EACH], by_other[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            by_own[i] = at.template said<true>(across + 2 * i, along);
            by_other[i] = at.template said<false>(along, across + 2 * i);
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) room.values[across + 2 * i][along] = by_own[i];
        __syncwarp();
#pragma unroll
        for (int i = 0; i < EACH; i++) room.values[along][across + 2 * i] += by_other[i];
        __syncwarp();
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) scores[n][i] += value(n, i);
        }
        // The next square, or `collect`, overwrites what other lanes read here.
        __syncwarp();
    }
    // Adds up the gradients of these scores, behind `add` of the same square.
    template <bool OWN_ARE_KEYS>
    __device__ __forceinline__ void collect(const float (&d_scores)[2][4], u32 other) const {
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) value(n, i) = rounded<T>(d_scores[n][i]);
        }
        __syncwarp();
        square<OWN_ARE_KEYS>(other).template collect<WARP>(room.values, room.carried, lane.lane);
        __syncwarp();
    }
};
