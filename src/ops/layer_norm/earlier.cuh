// The earlier backward kernel, in which one warp holds a row in registers: see `earlier.rs`. Included after
// backward.cuh.

// Makes the compiler recompute everything that it derived from these values. Otherwise it would keep the
// derived values in registers, needing twice as many, and half as many warps would fit on a multiprocessor.
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

// For rows of at most CHUNKS * 32 N columns: a warp holds its row and the sums over its columns in registers.
// The shared memory is [BACKWARD_WARPS, cols].
template <typename T, int N, int CHUNKS, int SUMS, typename After>
__device__ __forceinline__ void backward_by_one_warp(const NormBackward& a, const After& after) {
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
        RowGradient known = {mean_at(a, row), a.rstd[row], 0.0f, 0.0f};
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            int col = held_column<N>(c);
            if (col < cols) {
                float weight[N];
                load_vector<N>(weight, a.weight + col);
                float n[N];
                normalise<T, N>(n, known, x[c]);
                add_gradients<T, N>(known, dy[c], n, weight);
            }
        }
        finish_gradients(a, known);
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
