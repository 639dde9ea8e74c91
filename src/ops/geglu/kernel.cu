// Gated GELU; see mod.rs for the formulas, columns.cuh for the assignment of values to threads.
#include "columns.cuh"

#include "../activation/gelu.cuh"

struct Args {
    const void* dy;   // [T, F], backward only
    const void* x;    // [T, 2F]: the inputs of GELU, then the gates
    void* to;         // forward: y [T, F]; backward: dx [T, 2F]
    Columns columns;  // for a matrix [T, F]
    u32 wide;
};

template <typename T, int N>
__device__ __forceinline__ void forward_columns(const Args& a) {
    const T* x = static_cast<const T*>(a.x);
    T* y = static_cast<T*>(a.to);
    i64 cols = a.columns.cols;
    each_row<N>(a.columns, [&](i64 row, i64 at) {
        float values[N], gates[N];
        load<N>(values, x + at + row * cols);
        load<N>(gates, x + at + row * cols + cols);
#pragma unroll
        for (int i = 0; i < N; i++) values[i] = Gelu::forward(values[i]) * gates[i];
        store<N>(y + at, values);
    });
}

template <typename T>
__device__ void forward(const Args& a) {
    if (a.wide) {
        forward_columns<T, WIDE<T>>(a);
    } else {
        forward_columns<T, 1>(a);
    }
}
KERNELS(geglu_forward, Args, 256, forward)

template <typename T, int N>
__device__ __forceinline__ void backward_columns(const Args& a) {
    const T* dy = static_cast<const T*>(a.dy);
    const T* x = static_cast<const T*>(a.x);
    T* dx = static_cast<T*>(a.to);
    i64 cols = a.columns.cols;
    each_row<N>(a.columns, [&](i64 row, i64 at) {
        float gradients[N], values[N], gates[N];
        load<N>(gradients, dy + at);
        load<N>(values, x + at + row * cols);
        load<N>(gates, x + at + row * cols + cols);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float u = values[i];
            Gelu normal = Gelu::at(u);
            values[i] = gradients[i] * gates[i] * fmaf(u, normal.density, normal.cdf);
            gates[i] = gradients[i] * (u * normal.cdf);
        }
        store<N>(dx + at + row * cols, values);
        store<N>(dx + at + row * cols + cols, gates);
    });
}

template <typename T>
__device__ void backward(const Args& a) {
    if (a.wide) {
        backward_columns<T, WIDE<T>>(a);
    } else {
        backward_columns<T, 1>(a);
    }
}
KERNELS(geglu_backward, Args, 256, backward)
