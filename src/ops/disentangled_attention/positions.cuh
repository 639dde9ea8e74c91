// Adds position scores to the scores of attention, and sums the gradients of scores for each row of the
// tables of relative positions.
//
// A block has its own rows, which are queries or (OWN_ARE_KEYS) keys, and processes the rows of the other
// side in squares, with its own rows as rows of the square. The row of the tables for a query and a key
// depends only on their distance, so a square of N by N has 2 N - 1 such rows, which are computed once. The
// row never decreases if the distance increases, so the keys that share a row for one query are adjacent: a
// run. The gradients of a run are summed by the thread of its first column, in the order of the columns, and
// written once. A run that continues in the next square is carried over to it.

struct RelativeArgs : Args {
    const void* by_query;  // [H, T, stride]: position scores of queries; null without that term
    const void* by_key;    // [H, T, stride]: position scores of keys; null without that term
    void* d_by_query;      // [H, T, stride]: gradients of both
    void* d_by_key;
    const u32* table_rows;  // rows of the tables for the distances -(places - 1) to places - 1
    i64 tokens;
    i64 stride;   // a multiple of 8
    u32 places;
    u32 first;    // the row of the tables that belongs to column 0 of the position scores
};

constexpr u32 NOWHERE = 0xffffffff;

// For each row of a square, the unfinished run at the end of the row: its row of the tables, and its sum so
// far.
template <int SIDE>
struct Carried {
    u32 place[SIDE];
    float sum[SIDE];
};

// A square of the own rows `own..own + SIDE` and the other side's rows `other..other + SIDE`, counted in the
// segment. `places` has the rows of the tables for its distances, [2 SIDE - 1].
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
    // Computes `places`, with `COUNT` threads. Entries for distances that do not occur in the segment are
    // meaningless.
    template <u32 COUNT>
    __device__ __forceinline__ void look(u32 thread) const {
        for (u32 i = thread; i < 2 * SIDE - 1; i += COUNT) {
            int distance = (OWN_ARE_KEYS ? int(other) - int(own) : int(own) - int(other)) + int(i) - (SIDE - 1);
            int last = int(a.places) - 1;
            places[i] = a.table_rows[max(-last, min(last, distance)) + last] - a.first;
        }
    }
    // The first position score of a row of the segment.
    template <typename V>
    __device__ __forceinline__ V* of_row(V* all, u32 row) const {
        return all + (i64(blockIdx.y) * a.tokens + tile.start + row) * a.stride;
    }
    __device__ __forceinline__ T* sums() const { return static_cast<T*>(OWN_ARE_KEYS ? a.d_by_key : a.d_by_query); }
    // The position score of the own row, or of the other side's row: 0 without this term, or past the end of
    // the segment.
    template <bool OWN>
    __device__ __forceinline__ float said(u32 row, u32 column) const {
        const T* all = static_cast<const T*>(OWN == OWN_ARE_KEYS ? a.by_key : a.by_query);
        if (!all || !holds(row, column)) return 0.0f;
        return widen(of_row(all, OWN ? own + row : other + column)[places[index(row, column)]]);
    }
    // Zeroes the gradients of the position scores of `count` own rows, because not every distance occurs in
    // each row.
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
    // Sums the gradients of scores [SIDE][SIDE + 1], which are rounded as for the products with queries and
    // keys.
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

// Shared memory of the plain kernels for positions, after their `PlainRoom`.
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
    // All blocks of a wide head would compute the same sums, so only the first one does.
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

constexpr int SIDE = 16;  // side of the square that a warp processes at once on tensor cores

// Shared memory of each warp for positions, after all other shared memory. A column of padding keeps the
// values of a column in different banks.
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
    // The element of the square for value `i` of tile `n` of the accumulator C.
    __device__ __forceinline__ float& value(int n, int i) const {
        return room.values[lane.row + i / 2 * 8][n * 8 + lane.column + i % 2];
    }
    template <bool OWN_ARE_KEYS>
    __device__ __forceinline__ void begin() const {
        square<OWN_ARE_KEYS>(0).template clear<WARP>(lane.lane, SIDE);
    }
    // Adds the position scores to the scores of 16 own rows and the 16 other rows that begin at `other`. The
    // position scores of a row are adjacent in memory, so lanes read along a row: along rows of the square
    // for own rows, along columns for the other side's. All loads are issued before the first result is used.
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
    // Sums the gradients of these scores; called after `add` of the same square.
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
