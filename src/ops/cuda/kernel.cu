// Kernels that no single op owns.
#include "common.cuh"

// ---- sums over rows, second half: what blocks of rows came to is added in order ----

struct AddPartialsArgs {
    const float* partials;  // [count, cols]
    float* out;             // [cols], added to
    i64 count;
    i64 cols;
    i64 stride;  // values between the partial sums of two blocks
};

__device__ void add_partials(const AddPartialsArgs& a) {
    i64 col = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (col >= a.cols) return;
    float sum = 0.0f;
    for (i64 p = 0; p < a.count; p++) sum += a.partials[p * a.stride + col];
    a.out[col] += sum;
}
KERNEL(add_partials_f32, AddPartialsArgs, 256, add_partials)

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

// ---- one row in the place of each ----

struct SpreadArgs {
    const void* row;  // [cols]
    void* out;        // [count / cols, cols]
    i64 count;
    i64 cols;
};

template <typename T>
__device__ void spread_rows(const SpreadArgs& a) {
    const T* row = static_cast<const T*>(a.row);
    T* out = static_cast<T*>(a.out);
    i64 step = i64(gridDim.x) * blockDim.x;
    for (i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x; i < a.count; i += step) out[i] = row[i % a.cols];
}
KERNELS(spread_rows, SpreadArgs, 256, spread_rows)
