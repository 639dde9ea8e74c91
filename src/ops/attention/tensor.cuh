// Definitions that the tensor-core kernels of attention share: tiles in shared memory, products of 16 x 16
// tiles.
//
// Rows in shared memory are K values and 16 bytes of padding, so that for each K eight rows, 16 bytes each,
// are in different banks. Keys and values (or queries and output gradients) are streamed through two stages:
// one is filled while the other is used.
constexpr float LOG2_E = 1.4426950408889634f;

template <int K>
struct Room {
    static constexpr int STRIDE = K + 8;
    // Rows of a streamed tile, chosen so that both stages stay under 48 KiB. The same as in cuda.rs.
    static constexpr int STREAM = K <= 80 ? 64 : 32;
    static constexpr int CHUNKS = STREAM / 16;
    // Number of values of a stage, which holds two tiles.
    static constexpr int STAGE = 2 * STREAM * STRIDE;
};

struct Lane {
    u32 lane = threadIdx.x % WARP;
    u32 warp = threadIdx.x / WARP;
    u32 row = lane / 4;         // first row of the lane in C; the second is row + 8
    u32 column = lane % 4 * 2;  // first column of the lane in C; the second is column + 1
};

// Returns the offset of the row that a lane passes to `load_matrices` for an operand B whose columns are the
// rows in shared memory. Results [0] and [1] are then the pair b0, b1 for rows 0 to 7 of 16, [2] and [3] for
// rows 8 to 15.
template <int K>
__device__ __forceinline__ u32 at_columns(const Lane& lane) {
    return (lane.lane % 8 + lane.lane / 16 * 8) * Room<K>::STRIDE + lane.lane / 8 % 2 * 8;
}
// Returns the same for an operand A. With `load_matrices_transposed`, the offset is for an operand B whose
// rows are the rows in shared memory: b0, b1 for its columns 0 to 7 and then 8 to 15.
template <int K>
__device__ __forceinline__ u32 at_rows(const Lane& lane) {
    return lane.lane % 16 * Room<K>::STRIDE + lane.lane / 16 * 8;
}

// Starts to copy `COUNT` rows to shared memory, of which the first `count` exist; the others become zeros. A
// thread copies the same columns of each of its rows; `at` is the address of these columns in its first row.
template <typename T, int K, int COUNT, int THREADS = 128>
__device__ __forceinline__ void copy_rows_at(T* to, const T* at, u32 count, i64 hidden) {
    constexpr int PIECES = K / 8, STEP = THREADS / PIECES;
    static_assert(THREADS % PIECES == 0 && COUNT % STEP == 0);
    const u32 row = threadIdx.x / PIECES, column = threadIdx.x % PIECES * 8;
#pragma unroll
    for (int i = 0; i < COUNT / STEP; i++) {
        copy_async<16>(to + (row + i * STEP) * Room<K>::STRIDE + column, at + i * STEP * hidden, row + i * STEP < count);
    }
}

// Starts to copy `COUNT` rows from `first` on to shared memory; rows from `end` on become zeros.
template <typename T, int K, int COUNT, int THREADS = 128>
__device__ __forceinline__ void copy_rows(T* to, const T* from, i64 first, i64 end, i64 hidden) {
    constexpr int PIECES = K / 8, ALL = COUNT * PIECES, STEP = THREADS / PIECES;
    const u32 count = u32(end - first);
    if constexpr (THREADS % PIECES == 0 && COUNT % STEP == 0) {
        const u32 row = threadIdx.x / PIECES, column = threadIdx.x % PIECES * 8;
        copy_rows_at<T, K, COUNT, THREADS>(to, from + (first + row) * hidden + column, count, hidden);
    } else {
#pragma unroll
        for (int i = 0; i < (ALL + THREADS - 1) / THREADS; i++) {
            u32 piece = i * THREADS + threadIdx.x, row = piece / PIECES, column = piece % PIECES * 8;
            if (ALL % THREADS != 0 && piece >= ALL) continue;
            copy_async<16>(to + row * Room<K>::STRIDE + column, from + (first + row) * hidden + column, row < count);
        }
    }
}

// Loads the 16 rows of a warp as fragments of A.
template <typename T, int K>
__device__ __forceinline__ void load_rows(u32 (&a)[K / 16][4], const T* rows, const Lane& lane) {
#pragma unroll
    for (int k = 0; k < K / 16; k++) load_matrices(a[k], rows + at_rows<K>(lane) + k * 16);
}

// Computes c[16, 16] = a[16, K] b[16, K]^T.
template <typename T, int K>
__device__ __forceinline__ void times_transposed(float (&c)[2][4], const u32 (&a)[K / 16][4], const T* b, const Lane& lane) {
#pragma unroll
    for (int i = 0; i < 4; i++) c[0][i] = c[1][i] = 0.0f;
#pragma unroll
    for (int k = 0; k < K / 16; k++) {
        u32 r[4];
        load_matrices(r, b + at_columns<K>(lane) + k * 16);
        mma<T>(c[0], a[k], r[0], r[1]);
        mma<T>(c[1], a[k], r[2], r[3]);
    }
}

// Rounds two tiles of C and packs them as one tile of A.
template <typename T>
__device__ __forceinline__ void pack_tiles(u32 (&rounded)[4], const float (&c)[2][4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) rounded[i] = pack<T>(c[i / 2][i % 2 * 2], c[i / 2][i % 2 * 2 + 1]);
}

// Computes c[16, K] += a[16, 16] b[16, K].
template <typename T, int K>
__device__ __forceinline__ void add_product(float (&c)[K / 8][4], const u32 (&rounded)[4], const T* b, const Lane& lane) {
#pragma unroll
    for (int d = 0; d < K / 16; d++) {
        u32 r[4];
        load_matrices_transposed(r, b + at_rows<K>(lane) + d * 16);
        mma<T>(c[2 * d], rounded, r[0], r[1]);
        mma<T>(c[2 * d + 1], rounded, r[2], r[3]);
    }
}
// Computes the same product with two tiles of C as `a`.
template <typename T, int K>
__device__ __forceinline__ void add_product(float (&c)[K / 8][4], const float (&a)[2][4], const T* b, const Lane& lane) {
    u32 rounded[4];
    pack_tiles<T>(rounded, a);
    add_product<T, K>(c, rounded, b, lane);
}

// Returns true if c[n][i] is kept, in a tile whose rows are queries; `bits` are word `row` of the square
// (`kept_at`), from bit `column` on.
__device__ __forceinline__ bool kept(u32 bits, int n, int i) { return bits >> (i / 2 * 16 + n * 8 + i % 2) & 1; }
// Returns true if c[n][i] is kept, in a tile whose rows are keys; `bits` are words `column` and `column + 1`
// of the square, from bit `row` on.
__device__ __forceinline__ bool kept_transposed(const u32 (&bits)[2], int n, int i) { return bits[i % 2] >> (n * 16 + i / 2 * 8) & 1; }

// Writes the 16 rows of a warp, multiplied by `low` for rows 0 to 7 and by `high` for the others, by way of
// the warp's own shared memory.
template <typename T, int K>
__device__ __forceinline__ void store_rows(
    T* room, const float (&c)[K / 8][4], float low, float high, T* to, i64 first, i64 end, i64 hidden, const Lane& lane) {
    constexpr int PIECES = K / 8;
#pragma unroll
    for (int d = 0; d < K / 8; d++) {
        T* at = room + lane.row * Room<K>::STRIDE + d * 8 + lane.column;
        *reinterpret_cast<u32*>(at) = pack<T>(c[d][0] * low, c[d][1] * low);
        *reinterpret_cast<u32*>(at + 8 * Room<K>::STRIDE) = pack<T>(c[d][2] * high, c[d][3] * high);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 16 * PIECES / int(WARP); i++) {
        u32 piece = i * WARP + lane.lane, row = piece / PIECES, column = piece % PIECES * 8;
        if (first + row < end) {
            *reinterpret_cast<Vec<u32, 4>*>(to + (first + row) * hidden + column) =
                *reinterpret_cast<const Vec<u32, 4>*>(room + row * Room<K>::STRIDE + column);
        }
    }
    __syncwarp();
}

// Sum and maximum over the four lanes that share rows of C.
__device__ __forceinline__ float quad_sum(float value) {
    value += __shfl_xor_sync(ALL_LANES, value, 1);
    return value + __shfl_xor_sync(ALL_LANES, value, 2);
}
__device__ __forceinline__ float quad_max(float value) {
    value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, 1));
    return fmaxf(value, __shfl_xor_sync(ALL_LANES, value, 2));
}
