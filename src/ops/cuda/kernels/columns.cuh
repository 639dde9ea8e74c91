// Partition of a matrix over the blocks and lanes of element-wise kernels, and sums of columns computed on
// the way.
//
// A block has 8 warps and processes `block_rows` rows of 32 N columns: a lane holds N neighbouring columns,
// and the warps take the rows in turns. The order of a column's sum depends on the number of rows and on
// `block_rows` alone, not on N.
#pragma once

#include "common.cuh"

constexpr u32 COLUMN_WARPS = 8;

// Same layout as `Columns` in `columns.rs`.
struct Columns {
    i64 rows;
    i64 cols;
    i64 stride;  // values from one row to the next
    i64 block_rows;
};

// Returns the first of the N columns of this lane, which is past the last column if there are no more.
template <int N>
__device__ __forceinline__ i64 lane_column() {
    return (i64(blockIdx.x) * WARP + threadIdx.x % WARP) * N;
}

// Calls `f(row, offset)` for each row of this lane; `offset` is the index of the lane's first value in that
// row.
template <int N, int UNROLL = 1, typename F>
__device__ __forceinline__ void each_row(const Columns& c, F f) {
    i64 col = lane_column<N>();
    if (col >= c.cols) return;
    i64 first = i64(blockIdx.y) * c.block_rows, end = min(first + c.block_rows, c.rows);
#pragma unroll UNROLL
    for (i64 row = first + threadIdx.x / WARP; row < end; row += COLUMN_WARPS) f(row, row * c.stride + col);
}

// Adds up the sums that the block's lanes hold of each column, and writes the result to the block's row of
// `partials`, [blocks of rows, cols]. All threads of the block must call this; dynamic shared memory holds
// one value per lane and column.
template <int N>
__device__ __forceinline__ void write_column_sums(const Columns& c, const float (&sums)[N], float* partials) {
    float* room = reinterpret_cast<float*>(shared_memory());  // [COLUMN_WARPS, 32 N]
#pragma unroll
    for (int i = 0; i < N; i++) room[threadIdx.x * N + i] = sums[i];
    __syncthreads();
    for (u32 column = threadIdx.x; column < WARP * N; column += blockDim.x) {
        i64 col = i64(blockIdx.x) * WARP * N + column;
        float sum = 0.0f;
        for (u32 w = 0; w < COLUMN_WARPS; w++) sum += room[w * WARP * N + column];
        if (col < c.cols) partials[i64(blockIdx.y) * c.cols + col] = sum;
    }
}
