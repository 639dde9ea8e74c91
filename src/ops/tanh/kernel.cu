// Bias and hyperbolic tangent; see mod.rs for the formulas.
//
// A block has 8 warps and takes `block_rows` rows of 32 N columns: a lane holds N columns side by side, with the sum of their
// bias gradient, and the warps take the rows in turns.
#include "common.cuh"

constexpr u32 WARPS = 8;

struct Args {
    const void* dy;         // backward only
    const void* from;       // x, or y in backward
    const float* bias;      // forward only
    void* to;               // y or dx
    float* dbias_partials;  // [blocks of rows, cols], backward only
    i64 rows;
    i64 cols;
    i64 block_rows;
    u32 wide;
};

template <typename T, int N>
__device__ __forceinline__ void forward_columns(const Args& a) {
    i64 col = (i64(blockIdx.x) * WARP + threadIdx.x % WARP) * N;
    if (col >= a.cols) return;
    const T* x = static_cast<const T*>(a.from);
    T* y = static_cast<T*>(a.to);
    float bias[N];
#pragma unroll
    for (int i = 0; i < N; i++) bias[i] = a.bias[col + i];
    i64 first = i64(blockIdx.y) * a.block_rows, end = min(first + a.block_rows, a.rows);
    for (i64 row = first + threadIdx.x / WARP; row < end; row += WARPS) {
        float values[N];
        load<N>(values, x + row * a.cols + col);
#pragma unroll
        for (int i = 0; i < N; i++) values[i] = tanhf(values[i] + bias[i]);
        store<N>(y + row * a.cols + col, values);
    }
}

template <typename T>
__device__ void forward(const Args& a) {
    if (a.wide) {
        forward_columns<T, WIDE<T>>(a);
    } else {
        forward_columns<T, 1>(a);
    }
}
KERNELS(tanh_forward, Args, 256, forward)

template <typename T, int N>
__device__ __forceinline__ void backward_columns(const Args& a) {
    float* room = reinterpret_cast<float*>(shared_memory());  // [WARPS, 32 N]
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    i64 col = (i64(blockIdx.x) * WARP + lane) * N;
    const T* all_dy = static_cast<const T*>(a.dy);
    const T* all_y = static_cast<const T*>(a.from);
    T* dx = static_cast<T*>(a.to);
    float sums[N] = {};
    i64 first = i64(blockIdx.y) * a.block_rows, end = min(first + a.block_rows, a.rows);
    for (i64 row = first + warp; row < end && col < a.cols; row += WARPS) {
        float y[N], values[N];
        load<N>(y, all_y + row * a.cols + col);
        load<N>(values, all_dy + row * a.cols + col);
#pragma unroll
        for (int i = 0; i < N; i++) {
            values[i] *= 1.0f - y[i] * y[i];
            sums[i] += values[i];
        }
        store<N>(dx + row * a.cols + col, values);
    }
#pragma unroll
    for (int i = 0; i < N; i++) room[(warp * WARP + lane) * N + i] = sums[i];
    __syncthreads();
    for (u32 c = threadIdx.x; c < WARP * N; c += blockDim.x) {
        i64 column = i64(blockIdx.x) * WARP * N + c;
        float sum = 0.0f;
        for (u32 w = 0; w < WARPS; w++) sum += room[w * WARP * N + c];
        if (column < a.cols) a.dbias_partials[i64(blockIdx.y) * a.cols + column] = sum;
    }
}

template <typename T>
__device__ void backward(const Args& a) {
    if (a.wide) {
        backward_columns<T, WIDE<T>>(a);
    } else {
        backward_columns<T, 1>(a);
    }
}
KERNELS(tanh_backward, Args, 256, backward)
