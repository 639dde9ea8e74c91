// Layer normalisation of rows, backward, for the ops that end in one; included behind forward.cuh, in the
// same way.
//
// A block takes `block_rows` rows, its warps in turns, and sums columns over them.

constexpr u32 BACKWARD_WARPS = 8;

// Twin of `NormBackward` in cuda.rs.
struct NormBackward {
    const void* dy;
    const void* more;  // added to dx before it is rounded; null where there is nothing
    const void* x;
    const float* weight;
    const float* mean;
    const float* rstd;
    void* dx;
    float* partials;  // [blocks, SUMS * cols]: for dweight, dbias, and what `after` makes of dx
    i64 rows;
    i64 cols;
    i64 block_rows;
    u32 wide;
};

// What the gradient of a row needs to know of the whole row.
struct RowGradient {
    float mean;
    float rstd;
    float gradient_mean;  // of dy * weight
    float gradient_dot;   // mean of dy * weight * normalised

    __device__ __forceinline__ float normalised(float x) const { return (x - mean) * rstd; }
    __device__ __forceinline__ float dx(float dy, float weight, float n) const {
        return rstd * fmaf(-n, gradient_dot, fmaf(dy, weight, -gradient_mean));
    }
};

// Adds to the two sums over a row.
template <typename T, int N>
__device__ __forceinline__ void add_gradients(RowGradient& row, const Vec<T, N>& dy, const Vec<T, N>& x, const float (&weight)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        float g = widen(dy.v[i]) * weight[i];
        row.gradient_mean += g;
        row.gradient_dot = fmaf(g, row.normalised(widen(x.v[i])), row.gradient_dot);
    }
}

__device__ __forceinline__ void finish_gradients(RowGradient& row, i64 cols) {
    row.gradient_mean = warp_sum(row.gradient_mean) / float(cols);
    row.gradient_dot = warp_sum(row.gradient_dot) / float(cols);
}

// `SUMS` is 2, or 3 with `after(row, col, values)`: it gets dx before it is rounded, and leaves what the
// third sum adds up.
template <typename T, int N, int SUMS, typename After>
__device__ __forceinline__ void write_gradients(const NormBackward& a, const RowGradient& known, i64 row, i64 col, const Vec<T, N>& dy,
                                                const Vec<T, N>& x, float (&sums)[SUMS][N], const After& after) {
    float weight[N], values[N];
    load_vector<N>(weight, a.weight + col);
#pragma unroll
    for (int i = 0; i < N; i++) {
        float d = widen(dy.v[i]), n = known.normalised(widen(x.v[i]));
        values[i] = known.dx(d, weight[i], n);
        sums[0][i] = fmaf(d, n, sums[0][i]);
        sums[1][i] += d;
    }
    if (a.more) {
        float more[N];
        load<N>(more, static_cast<const T*>(a.more) + row * a.cols + col);
#pragma unroll
        for (int i = 0; i < N; i++) values[i] += more[i];
    }
    store<N>(static_cast<T*>(a.dx) + row * a.cols + col, values);
    if constexpr (SUMS == 3) {
        after(row, col, values);
#pragma unroll
        for (int i = 0; i < N; i++) sums[2][i] += values[i];
    }
}

// The compiler must work out anew what follows from these values: it would keep twice the registers, and half
// the warps fit.
template <typename T, int N>
__device__ __forceinline__ void forget(Vec<T, N>& values) {
#ifndef KERNELS_ON_HOST
    u32* words = reinterpret_cast<u32*>(&values);
#pragma unroll
    for (int i = 0; i < int(sizeof(values) / sizeof(u32)); i++) asm volatile("" : "+r"(words[i]));
#else
    (void)values;
#endif
}

// For rows of at most CHUNKS * 32 N columns: a warp holds its row and the sums of the columns in registers.
// The shared memory is [BACKWARD_WARPS, cols].
template <typename T, int N, int CHUNKS, int SUMS, typename After>
__device__ __forceinline__ void backward_held(const NormBackward& a, const After& after) {
    int warp = threadIdx.x / WARP, cols = int(a.cols);
    const T* all_dy = static_cast<const T*>(a.dy);
    const T* all_x = static_cast<const T*>(a.x);
    float sums[CHUNKS][SUMS][N] = {};
    i64 first = i64(blockIdx.x) * a.block_rows, end = min(first + a.block_rows, a.rows);
    for (i64 row = first + warp; row < end; row += BACKWARD_WARPS) {
        Vec<T, N> dy[CHUNKS], x[CHUNKS];
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            int col = held_column<N>(c);
            if (col < cols) {
                dy[c] = load_whole<T, N>(all_dy + row * a.cols + col);
                x[c] = load_whole<T, N>(all_x + row * a.cols + col);
            }
        }
        RowGradient known = {a.mean[row], a.rstd[row], 0.0f, 0.0f};
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            int col = held_column<N>(c);
            if (col < cols) {
                float weight[N];
                load_vector<N>(weight, a.weight + col);
                add_gradients<T, N>(known, dy[c], x[c], weight);
            }
        }
        finish_gradients(known, a.cols);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            int col = held_column<N>(c);
            if (col < cols) {
                forget(dy[c]);
                forget(x[c]);
                write_gradients<T, N, SUMS>(a, known, row, col, dy[c], x[c], sums[c], after);
            }
        }
    }
    float* room = reinterpret_cast<float*>(shared_memory());
#pragma unroll
    for (int s = 0; s < SUMS; s++) {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            int col = held_column<N>(c);
            if (col < cols) store_vector<N>(room + warp * cols + col, sums[c][s]);
        }
        __syncthreads();
        for (int col = threadIdx.x; col < cols; col += blockDim.x) {
            float sum = 0.0f;
            for (int w = 0; w < int(BACKWARD_WARPS); w++) sum += room[w * cols + col];
            a.partials[(i64(blockIdx.x) * SUMS + s) * a.cols + col] = sum;
        }
        __syncthreads();
    }
}

// Rows whose sums are known at once, where the row is not held; the shared memory is [TILE_ROWS].
constexpr i64 TILE_ROWS = 16;

// For rows of any width, in tiles: warps find the sums over rows, then threads go down the columns, and read
// all again.
template <typename T, int N, int SUMS, typename After>
__device__ __forceinline__ void backward_any(const NormBackward& a, const After& after) {
    RowGradient* tile = reinterpret_cast<RowGradient*>(shared_memory());
    const T* dy = static_cast<const T*>(a.dy);
    const T* x = static_cast<const T*>(a.x);
    i64 first = i64(blockIdx.x) * a.block_rows, end = min(first + a.block_rows, a.rows);
    for (i64 start = first; start < end; start += TILE_ROWS) {
        i64 stop = min(start + TILE_ROWS, end);
        for (i64 row = start + threadIdx.x / WARP; row < stop; row += BACKWARD_WARPS) {
            RowGradient known = {a.mean[row], a.rstd[row], 0.0f, 0.0f};
            for (i64 col = i64(threadIdx.x % WARP) * N; col < a.cols; col += WARP * N) {
                float weight[N];
                load_vector<N>(weight, a.weight + col);
                i64 at = row * a.cols + col;
                add_gradients<T, N>(known, load_whole<T, N>(dy + at), load_whole<T, N>(x + at), weight);
            }
            finish_gradients(known, a.cols);
            if (threadIdx.x % WARP == 0) tile[row - start] = known;
        }
        __syncthreads();
        for (i64 col = i64(threadIdx.x) * N; col < a.cols; col += i64(blockDim.x) * N) {
            float* partials = a.partials + i64(blockIdx.x) * SUMS * a.cols + col;
            // A column is one thread's in all tiles, so its sums may wait in memory.
            float sums[SUMS][N];
#pragma unroll
            for (int s = 0; s < SUMS; s++) {
#pragma unroll
                for (int i = 0; i < N; i++) sums[s][i] = start > first ? partials[s * a.cols + i] : 0.0f;
            }
            for (i64 row = start; row < stop; row++) {
                i64 at = row * a.cols + col;
                write_gradients<T, N, SUMS>(a, tile[row - start], row, col, load_whole<T, N>(dy + at), load_whole<T, N>(x + at), sums,
                                            after);
            }
#pragma unroll
            for (int s = 0; s < SUMS; s++) {
#pragma unroll
                for (int i = 0; i < N; i++) partials[s * a.cols + i] = sums[s][i];
            }
        }
        __syncthreads();
    }
}
