// The moving average of the weights; see mod.rs.
#include "common.cuh"

struct AverageArgs {
    float* average;
    float* weights;
    i64 count;
    float rest;  // 1 - decay
    u32 wide;    // 1 if both are read and written 16 bytes at a time
};

template <int N>
__device__ __forceinline__ void approach(const AverageArgs& args) {
    i64 step = i64(gridDim.x) * blockDim.x * N;
    for (i64 i = (i64(blockIdx.x) * blockDim.x + threadIdx.x) * N; i < args.count; i += step) {
        float average[N], weights[N];
        load<N>(average, args.average + i);
        load<N>(weights, args.weights + i);
#pragma unroll
        for (int j = 0; j < N; j++) average[j] = fmaf(args.rest, weights[j] - average[j], average[j]);
        store<N>(args.average + i, average);
    }
}
__device__ void update_average(const AverageArgs& args) {
    if (args.wide) {
        approach<4>(args);
    } else {
        approach<1>(args);
    }
}
KERNEL(moving_average_update, AverageArgs, 256, update_average)

template <int N>
__device__ __forceinline__ void trade(const AverageArgs& args) {
    i64 step = i64(gridDim.x) * blockDim.x * N;
    for (i64 i = (i64(blockIdx.x) * blockDim.x + threadIdx.x) * N; i < args.count; i += step) {
        float average[N], weights[N];
        load<N>(average, args.average + i);
        load<N>(weights, args.weights + i);
        store<N>(args.average + i, weights);
        store<N>(args.weights + i, average);
    }
}
__device__ void exchange_values(const AverageArgs& args) {
    if (args.wide) {
        trade<4>(args);
    } else {
        trade<1>(args);
    }
}
KERNEL(moving_average_exchange, AverageArgs, 256, exchange_values)
