// Column sums, for the gradient of a bias; see mod.rs. The products are the library's.
//
// A block has 8 warps and takes `block_rows` rows of 32 N columns: a lane sums N columns side by side, and the warps take
// the rows in turns. The order of a column's sum depends on the rows and `block_rows` alone, not on N.
#include "common.cuh"

constexpr u32 WARPS = 8;

struct ColumnSumsArgs {
    const void* values;  // [rows, cols]
    float* partials;     // [blocks of rows, cols]
    i64 rows;
    i64 cols;
    i64 block_rows;
    u32 lane_values;  // N: 16 bytes, 2 values or one
};

template <typename T, int N>
__device__ __forceinline__ void sum_columns(const ColumnSumsArgs& a) {
    float* room = reinterpret_cast<float*>(shared_memory());  // [WARPS, 32 N]
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    i64 col = (i64(blockIdx.x) * WARP + lane) * N;
    const T* values = static_cast<const T*>(a.values);
    float sums[N];
#pragma unroll
    for (int i = 0; i < N; i++) sums[i] = 0.0f;
    i64 first = i64(blockIdx.y) * a.block_rows, end = min(first + a.block_rows, a.rows);
    if (col < a.cols) {
#pragma unroll 4
        for (i64 row = first + warp; row < end; row += WARPS) {
            float of_row[N];
            load<N>(of_row, values + row * a.cols + col);
#pragma unroll
            for (int i = 0; i < N; i++) sums[i] += of_row[i];
        }
    }
#pragma unroll
    for (int i = 0; i < N; i++) room[(warp * WARP + lane) * N + i] = sums[i];
    __syncthreads();
    for (u32 c = threadIdx.x; c < WARP * N; c += blockDim.x) {
        i64 column = i64(blockIdx.x) * WARP * N + c;
        float sum = 0.0f;
        for (u32 w = 0; w < WARPS; w++) sum += room[w * WARP * N + c];
        if (column < a.cols) a.partials[i64(blockIdx.y) * a.cols + column] = sum;
    }
}

template <typename T>
__device__ void column_sums(const ColumnSumsArgs& a) {
    if (a.lane_values == WIDE<T>) {
        sum_columns<T, WIDE<T>>(a);
    } else if (a.lane_values == 2) {
        sum_columns<T, 2>(a);
    } else {
        sum_columns<T, 1>(a);
    }
}
KERNELS(linear_column_sums, ColumnSumsArgs, 256, column_sums)
