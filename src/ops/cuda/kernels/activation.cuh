// Element-wise activation with a bias per column: `y = F(x + bias)`, and its gradients.
//
// F provides `forward(u)`, the function, and `slope(from, bias)`, its derivative as a function of the tensor
// that backward has: `x` (GELU) or `y` (tanh).
#pragma once

#include "columns.cuh"

// Same layout as `Args` in `activation.rs`.
struct ActivationArgs {
    const void* dy;         // backward only
    const void* from;       // x; in backward x or y, see `slope`
    const float* bias;      // null without a bias, or if backward does not need it
    void* to;               // y or dx
    float* dbias_partials;  // [blocks of rows, cols], backward only
    Columns columns;
    u32 wide;
};

template <int N>
__device__ __forceinline__ void load_bias(const ActivationArgs& a, float (&bias)[N]) {
    i64 col = lane_column<N>();
#pragma unroll
    for (int i = 0; i < N; i++) bias[i] = a.bias && col < a.columns.cols ? a.bias[col + i] : 0.0f;
}

template <typename T, typename F, int N>
__device__ __forceinline__ void activate_columns(const ActivationArgs& a) {
    const T* x = static_cast<const T*>(a.from);
    T* y = static_cast<T*>(a.to);
    float bias[N];
    load_bias<N>(a, bias);
    each_row<N>(a.columns, [&](i64, i64 at) {
        float values[N];
        load<N>(values, x + at);
#pragma unroll
        for (int i = 0; i < N; i++) values[i] = F::forward(values[i] + bias[i]);
        store<N>(y + at, values);
    });
}

template <typename T, typename F>
__device__ __forceinline__ void activate(const ActivationArgs& a) {
    if (a.wide) {
        activate_columns<T, F, WIDE<T>>(a);
    } else {
        activate_columns<T, F, 1>(a);
    }
}

template <typename T, typename F, int N>
__device__ __forceinline__ void activate_backward_columns(const ActivationArgs& a) {
    const T* dy = static_cast<const T*>(a.dy);
    const T* from = static_cast<const T*>(a.from);
    T* dx = static_cast<T*>(a.to);
    float bias[N], sums[N] = {};
    load_bias<N>(a, bias);
    each_row<N>(a.columns, [&](i64, i64 at) {
        float values[N], gradients[N];
        load<N>(values, from + at);
        load<N>(gradients, dy + at);
#pragma unroll
        for (int i = 0; i < N; i++) {
            gradients[i] *= F::slope(values[i], bias[i]);
            sums[i] += gradients[i];
        }
        store<N>(dx + at, gradients);
    });
    write_column_sums<N>(a.columns, sums, a.dbias_partials);
}

template <typename T, typename F>
__device__ __forceinline__ void activate_backward(const ActivationArgs& a) {
    if (a.wide) {
        activate_backward_columns<T, F, WIDE<T>>(a);
    } else {
        activate_backward_columns<T, F, 1>(a);
    }
}
