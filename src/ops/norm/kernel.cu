// The Euclidean norm in f64; see mod.rs.
//
// In the first kernel, a block sums the squares of `block_values` values; each thread reads four consecutive
// values at a time, with a stride of 4 * `blockDim.x`. In the second kernel, one block adds the sums of these
// blocks. Both orders of addition depend only on the number of values.
#include "common.cuh"

struct SquaresArgs {
    const void* values;  // f32 or a half type
    double* partials;  // [blocks]
    i64 count;
    i64 block_values;  // a multiple of 4
    u32 wide;
};

template <typename T>
__device__ void sum_squares(const SquaresArgs& a) {
    const T* values = static_cast<const T*>(a.values);
    double* room = reinterpret_cast<double*>(shared_memory());
    i64 first = i64(blockIdx.x) * a.block_values, end = min(first + a.block_values, a.count);
    double sum = 0.0;
#pragma unroll 4
    for (i64 i = first + 4 * threadIdx.x; i < end; i += 4 * blockDim.x) {
        float x[4];
        if (a.wide && i + 4 <= end) {
            load<4>(x, values + i);
        } else {
            for (int k = 0; k < 4; k++) x[k] = i + k < end ? widen(values[i + k]) : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < 4; k++) sum = fma(double(x[k]), double(x[k]), sum);
    }
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) a.partials[blockIdx.x] = sum;
}
KERNELS(norm_squares, SquaresArgs, 512, sum_squares)

struct RootArgs {
    const double* partials;
    double* norm;  // [1]
    i64 count;
};

__device__ void root(const RootArgs& a) {
    double* room = reinterpret_cast<double*>(shared_memory());
    double sum = 0.0;
    for (i64 i = threadIdx.x; i < a.count; i += blockDim.x) sum += a.partials[i];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) *a.norm = sqrt(sum);
}
KERNEL(norm_root, RootArgs, 512, root)

struct PoisonArgs {
    double* norm;
    const double* totals;
};

__device__ void poison(const PoisonArgs& a) {
    // The difference of infinity or NaN with itself is NaN, not zero.
    if (threadIdx.x == 0 && !(a.totals[0] - a.totals[0] == 0.0)) *a.norm = double(NAN);
}
KERNEL(norm_poison, PoisonArgs, 32, poison)
