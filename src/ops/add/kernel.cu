// Sums of two tensors; see mod.rs.
#include "common.cuh"

struct SumArgs {
    const void* a;
    const void* b;
    void* to;
    i64 count;
    u32 wide;  // 1 if all three are read and written 16 bytes at a time
};

template <typename T, int N>
__device__ __forceinline__ void sum_of(const SumArgs& args) {
    const T* left = static_cast<const T*>(args.a);
    const T* right = static_cast<const T*>(args.b);
    i64 step = i64(gridDim.x) * blockDim.x * N;
    for (i64 i = (i64(blockIdx.x) * blockDim.x + threadIdx.x) * N; i < args.count; i += step) {
        float a[N], b[N];
        load<N>(a, left + i);
        load<N>(b, right + i);
#pragma unroll
        for (int j = 0; j < N; j++) a[j] += b[j];
        store<N>(static_cast<T*>(args.to) + i, a);
    }
}
template <typename T>
__device__ void sum(const SumArgs& args) {
    if (args.wide) {
        sum_of<T, WIDE<T>>(args);
    } else {
        sum_of<T, 1>(args);
    }
}
KERNELS(add_sum, SumArgs, 256, sum)

struct AccumulateArgs {
    const void* x;
    float* sum;
    i64 count;
    u32 begun;  // 1 to add to `sum`, 0 to overwrite it
};

template <typename T>
__device__ void accumulate(const AccumulateArgs& args) {
    const T* x = static_cast<const T*>(args.x);
    i64 step = i64(gridDim.x) * blockDim.x;
    for (i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x; i < args.count; i += step) {
        args.sum[i] = (args.begun ? args.sum[i] : 0.0f) + widen(x[i]);
    }
}
KERNELS(add_accumulate, AccumulateArgs, 256, accumulate)
