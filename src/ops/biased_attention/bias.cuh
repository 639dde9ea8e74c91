// What the table of biases adds to the scores of attention, and what the gradients of scores come to for each of its
// rows.
//
// A block has its own rows, which are queries or (OWN_ARE_KEYS) keys, and goes through those of the other side in
// squares, whose rows are its own. Pairs of one distance stand on a diagonal, of which a square of N by N has 2 N - 1:
// what is added to each is noted once. Gradients are added up along diagonals, then over the diagonals that share a row
// of the table, which lie side by side, then over the squares: every sum has one order.

struct BiasedArgs : Args {
    const float* bias;  // [TABLE_ROWS, H]
    float* sums;        // [tiles, SUMS, TABLE_ROWS, H]
};

constexpr u32 TABLE_ROWS = 32;  // `ROWS` in buckets.rs
constexpr u32 SUMS = 4;         // of a block: as in cuda.rs

// The row of the table for a query that stands `distance` tokens behind the key, as in buckets.rs.
__device__ __forceinline__ u32 table_row(int distance) {
    int apart = distance < 0 ? -distance : distance;
    int begun = (apart >= 8) + (apart >= 12) + (apart >= 16) + (apart >= 23)
              + (apart >= 32) + (apart >= 46) + (apart >= 64) + (apart >= 91);
    return u32(begun == 0 ? apart : 7 + begun) + (distance < 0 ? TABLE_ROWS / 2 : 0);
}

// A square of own rows from `own` on and others from `other` on, both counted in the segment.
template <bool OWN_ARE_KEYS, int SIDE>
struct BiasSquare {
    static constexpr u32 DIAGONALS = 2 * SIDE - 1;
    const BiasedArgs& a;
    u32 own, other;

    // Along it the query moves away from the key.
    __device__ __forceinline__ static u32 diagonal(u32 row, u32 column) {
        return OWN_ARE_KEYS ? SIDE - 1 + column - row : SIDE - 1 + row - column;
    }
    __device__ __forceinline__ u32 row_of(u32 diagonal) const {
        return table_row((OWN_ARE_KEYS ? int(other) - int(own) : int(own) - int(other)) + int(diagonal) - (SIDE - 1));
    }
    // Scores are scaled when this has been added.
    __device__ __forceinline__ float said(u32 row) const { return a.bias[row * a.heads + blockIdx.y] / a.scale; }
    // The sum along a diagonal of gradients of scores.
    __device__ __forceinline__ static float along(const float (*values)[SIDE + 1], u32 diagonal) {
        static_assert(!OWN_ARE_KEYS, "gradients are added up where own rows are queries");
        u32 first = diagonal < SIDE ? 0 : diagonal - (SIDE - 1), end = diagonal < SIDE ? diagonal + 1 : SIDE;
        float sum = 0.0f;
        for (u32 row = first; row < end; row++) sum += values[row][SIDE - 1 + row - diagonal];
        return sum;
    }
};

// Where sum `index` of this block stands for a row of the table.
__device__ __forceinline__ float& sum_at(const BiasedArgs& a, u32 index, u32 row) {
    return a.sums[((i64(blockIdx.x) * SUMS + index) * TABLE_ROWS + row) * a.heads + blockIdx.y];
}

// Behind the room of the plain kernels.
struct PlainBias {
    float said[2 * ROWS];       // by diagonal
    u32 rows[2 * ROWS];         // of the table
    float diagonals[2 * ROWS];  // sums of gradients
    float sums[TABLE_ROWS];     // of the squares so far; each is one thread's
};
static_assert(sizeof(PlainBias) == 1664, "as in cuda.rs");

template <typename T>
struct PlainPositions<T, BiasedArgs> {
    static constexpr bool ARE_THERE = true;
    const BiasedArgs& a;
    const Tile& tile;

    __device__ __forceinline__ PlainBias& room() const {
        return *reinterpret_cast<PlainBias*>(shared_memory() + sizeof(PlainRoom));
    }
    template <bool OWN_ARE_KEYS>
    __device__ __forceinline__ BiasSquare<OWN_ARE_KEYS, ROWS> square(u32 other) const {
        return {a, tile.first - tile.start, other};
    }
    template <bool OWN_ARE_KEYS>
    __device__ __forceinline__ void begin() const {
        if constexpr (!OWN_ARE_KEYS) {
            if (threadIdx.x < TABLE_ROWS) room().sums[threadIdx.x] = 0.0f;
        }
    }
    template <bool OWN_ARE_KEYS>
    __device__ __forceinline__ void look(u32 other) const {
        auto at = square<OWN_ARE_KEYS>(other);
        if (threadIdx.x < at.DIAGONALS) {
            u32 row = at.row_of(threadIdx.x);
            room().rows[threadIdx.x] = row;
            room().said[threadIdx.x] = at.said(row);
        }
    }
    template <bool OWN_ARE_KEYS>
    __device__ __forceinline__ float said(u32 row, u32 column, u32) const {
        return room().said[BiasSquare<OWN_ARE_KEYS, ROWS>::diagonal(row, column)];
    }
    // Every block of a wide head sums the same: one does. It has SUMS of them, all but the first of which are 0.
    template <bool OWN_ARE_KEYS>
    __device__ __forceinline__ void collect(const float (*values)[ROWS + 1], u32 other) const {
        if constexpr (!OWN_ARE_KEYS) {
            if (blockIdx.z > 0) return;
            auto at = square<false>(other);
            if (threadIdx.x < at.DIAGONALS) room().diagonals[threadIdx.x] = at.along(values, threadIdx.x);
            __syncthreads();
            const u32 row = threadIdx.x % TABLE_ROWS, index = threadIdx.x / TABLE_ROWS;
            if (index == 0) {
                float sum = room().sums[row];
                for (u32 d = 0; d < at.DIAGONALS; d++) {
                    if (room().rows[d] == row) sum += room().diagonals[d];
                }
                room().sums[row] = sum;
            }
            bool is_last = tile.end - tile.start - other <= ROWS;
            if (is_last && index < SUMS) sum_at(a, index, row) = index == 0 ? room().sums[row] : 0.0f;
        }
    }
};

constexpr int SIDE = 16;  // of what a warp has in hand on tensor cores

// Of each warp, behind all else. One column of padding keeps a column's values in different banks.
struct WarpBias {
    float values[SIDE][SIDE + 1];
    float by_row[TABLE_ROWS];  // what the diagonals of a square come to
};
static_assert(4 * sizeof(WarpBias) == 4864, "as in cuda.rs");

template <typename T>
struct TensorPositions<T, BiasedArgs> {
    static constexpr bool ARE_THERE = true;
    const BiasedArgs& a;
    const Tile& tile;
    WarpBias& room;
    u32 own;
    Lane lane;
    float sum = 0.0f;  // of the row of the table with the lane's number

    __device__ __forceinline__ TensorPositions(const BiasedArgs& a, const Tile& tile, void* all, u32 own)
        : a(a), tile(tile), room(static_cast<WarpBias*>(all)[threadIdx.x / WARP]), own(own) {}
    // A warp without rows leaves zeros.
    template <bool OWN_ARE_KEYS>
    __device__ __forceinline__ void begin() const {
        if constexpr (!OWN_ARE_KEYS) sum_at(a, lane.warp, lane.lane) = 0.0f;
    }
    // To scores of 16 own rows and the 16 others from `other` on; each lane knows a diagonal.
    template <bool OWN_ARE_KEYS>
    __device__ __forceinline__ void add(float (&scores)[2][4], u32 other) const {
        BiasSquare<OWN_ARE_KEYS, SIDE> at = {a, own, other};
        float said = at.said(at.row_of(lane.lane));
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                u32 row = lane.row + i / 2 * 8, column = n * 8 + lane.column + i % 2;
                scores[n][i] += __shfl_sync(ALL_LANES, said, at.diagonal(row, column));
            }
        }
    }
    // Adds up the gradients of these scores.
    template <bool OWN_ARE_KEYS>
    __device__ __forceinline__ void collect(const float (&d_scores)[2][4], u32 other) {
        if constexpr (!OWN_ARE_KEYS) {
            BiasSquare<false, SIDE> at = {a, own, other};
            const u32 first = at.row_of(0), last = at.row_of(at.DIAGONALS - 1);
            if (first == last) {
                // Far from each other, all pairs share a row.
                float all = 0.0f;
#pragma unroll
                for (int i = 0; i < 8; i++) all += rounded<T>(d_scores[i / 4][i % 4]);
                all = warp_sum(all);
                if (lane.lane == first) sum += all;
            } else {
                sum += by_row(at, d_scores);
            }
            if (tile.end - tile.start - other <= SIDE) sum_at(a, lane.warp, lane.lane) = sum;
        }
    }
    // What a square comes to for the row of the table with the lane's number.
    __device__ __forceinline__ float by_row(const BiasSquare<false, SIDE>& at, const float (&d_scores)[2][4]) const {
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                room.values[lane.row + i / 2 * 8][n * 8 + lane.column + i % 2] = rounded<T>(d_scores[n][i]);
            }
        }
        room.by_row[lane.lane] = 0.0f;
        __syncwarp();
        // A lane has a diagonal, the last one none. Those of one row stand side by side: the first of them
        // gets the sum.
        const bool is_one = lane.lane < at.DIAGONALS;
        const u32 row = is_one ? at.row_of(lane.lane) : TABLE_ROWS;
        float all = is_one ? at.along(room.values, lane.lane) : 0.0f;
#pragma unroll
        for (u32 apart = 1; apart < WARP; apart *= 2) {
            float next = __shfl_down_sync(ALL_LANES, all, apart);
            u32 row_of_next = __shfl_down_sync(ALL_LANES, row, apart);
            if (lane.lane + apart < WARP && row_of_next == row) all += next;
        }
        u32 before = __shfl_sync(ALL_LANES, row, lane.lane == 0 ? 0 : lane.lane - 1);
        if (is_one && (lane.lane == 0 || before != row)) room.by_row[row] = all;
        __syncwarp();
        float of_lane = room.by_row[lane.lane];
        __syncwarp();
        return of_lane;
    }
};
