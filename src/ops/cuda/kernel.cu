// Kernels that several ops share: sums of partial sums, rounding, broadcast of a row.
#include "common.cuh"

// ---- sums over rows, second pass: the partial sums of the blocks of rows are added in order ----

struct AddPartialsArgs {
    const float* partials;  // [count, stride]
    float* out[3];          // [cols] each, for up to three vectors side by side; null if a sum is not wanted
    i64 count;
    i64 cols;
    i64 stride;    // values between the partial sums of two blocks
    u32 begun[3];  // 1: add to `out`; 0: overwrite it
};

constexpr u32 SUM_WARPS = 16;  // `WARPS` in sums.rs

// A block processes 32 columns, one per lane. Its warps take the partial sums in turns, so that a column's
// reads are in flight concurrently: with one thread per column, the thread would wait for memory up to 264
// times in a row.
__device__ void add_partials(const AddPartialsArgs& a) {
    float* out = a.out[blockIdx.y];
    if (!out) return;
    float* room = reinterpret_cast<float*>(shared_memory());  // [SUM_WARPS, 32]
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    i64 col = i64(blockIdx.x) * WARP + lane;
    float sum = 0.0f;
    if (col < a.cols) {
        const float* from = a.partials + i64(blockIdx.y) * a.cols + col;
#pragma unroll 8
        for (i64 p = warp; p < a.count; p += SUM_WARPS) sum += from[p * a.stride];
    }
    room[threadIdx.x] = sum;
    __syncthreads();
    if (warp != 0 || col >= a.cols) return;
    float all = a.begun[blockIdx.y] ? out[col] : 0.0f;
    for (u32 w = 0; w < SUM_WARPS; w++) all += room[w * WARP + lane];
    out[col] = all;
}
KERNEL(add_partials_f32, AddPartialsArgs, 512, add_partials)

// ---- rounding to a half type ----

struct RoundArgs {
    const float* from;
    void* to;
    i64 count;
};

template <typename T>
__device__ void round_values(const RoundArgs& a) {
    T* to = static_cast<T*>(a.to);
    i64 step = i64(gridDim.x) * blockDim.x;
    for (i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x; i < a.count; i += step) to[i] = narrow<T>(a.from[i]);
}
KERNELS(round_values, RoundArgs, 256, round_values)

// ---- one row copied to every row of a matrix ----

struct SpreadArgs {
    const void* row;  // [cols]
    void* out;        // [count / cols, cols], rows `stride` values apart
    i64 count;
    i64 cols;
    i64 stride;
};

template <typename T>
__device__ void spread_rows(const SpreadArgs& a) {
    const T* row = static_cast<const T*>(a.row);
    T* out = static_cast<T*>(a.out);
    i64 step = i64(gridDim.x) * blockDim.x;
    for (i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x; i < a.count; i += step) {
        i64 col = i % a.cols;
        out[i / a.cols * a.stride + col] = row[col];
    }
}
KERNELS(spread_rows, SpreadArgs, 256, spread_rows)
