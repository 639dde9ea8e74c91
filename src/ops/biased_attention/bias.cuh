// Adds the biases of the table to the scores of attention, and sums the gradients of scores for each row of
// the table.
//
// A block has its own rows, which are queries or (OWN_ARE_KEYS) keys, and processes the rows of the other
// side in squares, with its own rows as rows of the square. The pairs of one distance form a diagonal, of
// which a square of N by N has 2 N - 1: the bias of each diagonal is computed once. Gradients are summed
// along each diagonal, then over the diagonals that share a row of the table, which are adjacent, then over
// the squares: the order of every sum is fixed.

struct BiasedArgs : Args {
    const float* bias;  // [TABLE_ROWS, H]
    float* sums;        // [tiles, SUMS, TABLE_ROWS, H]
};

constexpr u32 TABLE_ROWS = 32;  // `ROWS` in buckets.rs
constexpr u32 SUMS = 4;         // partial sums of a block for each row of the table, as in cuda.rs

// The row of the table for a query `distance` tokens after the key, as in buckets.rs.
__device__ __forceinline__ u32 table_row(int distance) {
    int apart = distance < 0 ? -distance : distance;
    int begun = (apart >= 8) + (apart >= 12) + (apart >= 16) + (apart >= 23)
              + (apart >= 32) + (apart >= 46) + (apart >= 64) + (apart >= 91);
    return u32(begun == 0 ? apart : 7 + begun) + (distance < 0 ? TABLE_ROWS / 2 : 0);
}

// A square of the own rows `own..own + SIDE` and the other side's rows `other..other + SIDE`, counted in the
// segment.
template <bool OWN_ARE_KEYS, int SIDE>
struct BiasSquare {
    static constexpr u32 DIAGONALS = 2 * SIDE - 1;
    const BiasedArgs& a;
    u32 own, other;

    // The number of a pair's diagonal; it increases with the distance of the query after the key.
    __device__ __forceinline__ static u32 diagonal(u32 row, u32 column) {
        return OWN_ARE_KEYS ? SIDE - 1 + column - row : SIDE - 1 + row - column;
    }
    __device__ __forceinline__ u32 row_of(u32 diagonal) const {
        return table_row((OWN_ARE_KEYS ? int(other) - int(own) : int(own) - int(other)) + int(diagonal) - (SIDE - 1));
    }
    // The bias of a row of the table, divided by the scale, because scores are scaled after it is added.
    __device__ __forceinline__ float said(u32 row) const { return a.bias[row * a.heads + blockIdx.y] / a.scale; }
    // The sum of the gradients of scores along a diagonal.
    __device__ __forceinline__ static float along(const float (*values)[SIDE + 1], u32 diagonal) {
        static_assert(!OWN_ARE_KEYS, "gradients are added up where own rows are queries");
        u32 first = diagonal < SIDE ? 0 : diagonal - (SIDE - 1), end = diagonal < SIDE ? diagonal + 1 : SIDE;
        float sum = 0.0f;
        for (u32 row = first; row < end; row++) sum += values[row][SIDE - 1 + row - diagonal];
        return sum;
    }
};

// Partial sum `index` of this block for a row of the table.
__device__ __forceinline__ float& sum_at(const BiasedArgs& a, u32 index, u32 row) {
    return a.sums[((i64(blockIdx.x) * SUMS + index) * TABLE_ROWS + row) * a.heads + blockIdx.y];
}

// Shared memory of the plain kernels for the bias, after their `PlainRoom`.
struct PlainBias {
    float said[2 * ROWS];       // bias of each diagonal
    u32 rows[2 * ROWS];         // row of the table of each diagonal
    float diagonals[2 * ROWS];  // sum of gradients along each diagonal
    float sums[TABLE_ROWS];     // sums over the squares so far; each belongs to one thread
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
    // All blocks of a wide head would compute the same sums, so only the first one does. Of its SUMS partial
    // sums, all but the first are 0.
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

constexpr int SIDE = 16;  // side of the square that a warp processes at once on tensor cores

// Shared memory of each warp for the bias, after all other shared memory. A column of padding keeps the
// values of a column in different banks.
struct WarpBias {
    float values[SIDE][SIDE + 1];
    float by_row[TABLE_ROWS];  // sums of a square for each row of the table
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
    float sum = 0.0f;  // the sum for the row of the table with the lane's number

    __device__ __forceinline__ TensorPositions(const BiasedArgs& a, const Tile& tile, void* all, u32 own)
        : a(a), tile(tile), room(static_cast<WarpBias*>(all)[threadIdx.x / WARP]), own(own) {}
    // Writes zeros first, for warps without rows.
    template <bool OWN_ARE_KEYS>
    __device__ __forceinline__ void begin() const {
        if constexpr (!OWN_ARE_KEYS) sum_at(a, lane.warp, lane.lane) = 0.0f;
    }
    // Adds the biases to the scores of 16 own rows and the 16 other rows that begin at `other`. Each lane
    // computes the bias of one diagonal.
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
    // Sums the gradients of these scores.
    template <bool OWN_ARE_KEYS>
    __device__ __forceinline__ void collect(const float (&d_scores)[2][4], u32 other) {
        if constexpr (!OWN_ARE_KEYS) {
            BiasSquare<false, SIDE> at = {a, own, other};
            const u32 first = at.row_of(0), last = at.row_of(at.DIAGONALS - 1);
            if (first == last) {
                // Queries and keys are so far apart that all pairs share a row of the table.
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
    // Returns the sum of a square's gradients for the row of the table with the lane's number.
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
        // Each lane except the last has a diagonal. The diagonals of one row of the table are adjacent; the
        // lane of the first of them gets their sum.
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
