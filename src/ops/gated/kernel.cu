// Gated activations; see gated.rs for the formulas, columns.cuh for the assignment of values to threads.
#include "columns.cuh"

#include "../activation/gelu.cuh"

// The function `u P(u)` at one number: `P(u)` and its derivative.
struct Curve {
    float share;
    float slope;
};

struct GatedByGelu {
    static __device__ __forceinline__ Curve at(float u) {
        Gelu normal = Gelu::at(u);
        return {normal.cdf, normal.density};
    }
};

struct GatedBySilu {
    // The exponential of a negative number does not overflow, and `1 - P` would lose digits for `P` near 1.
    static __device__ __forceinline__ Curve at(float u) {
        float e = expf(-fabsf(u)), larger = 1.0f / (1.0f + e);
        return {u < 0.0f ? e * larger : larger, e * larger * larger};
    }
};

struct Args {
    const void* dy;   // [T, F], backward only
    const void* x;    // [T, 2F]: the inputs of the function, then the gates
    void* to;         // forward: y [T, F]; backward: dx [T, 2F]
    Columns columns;  // for a matrix [T, F]
    u32 wide;
};

template <typename T, typename F, int N>
__device__ __forceinline__ void forward_columns(const Args& a) {
    const T* x = static_cast<const T*>(a.x);
    T* y = static_cast<T*>(a.to);
    i64 cols = a.columns.cols;
    each_row<N>(a.columns, [&](i64 row, i64 at) {
        float values[N], gates[N];
        load<N>(values, x + at + row * cols);
        load<N>(gates, x + at + row * cols + cols);
#pragma unroll
        for (int i = 0; i < N; i++) values[i] = values[i] * F::at(values[i]).share * gates[i];
        store<N>(y + at, values);
    });
}

template <typename T, typename F>
__device__ __forceinline__ void forward(const Args& a) {
    if (a.wide) {
        forward_columns<T, F, WIDE<T>>(a);
    } else {
        forward_columns<T, F, 1>(a);
    }
}

template <typename T, typename F, int N>
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
            Curve curve = F::at(u);
            values[i] = gradients[i] * gates[i] * fmaf(u, curve.slope, curve.share);
            gates[i] = gradients[i] * (u * curve.share);
        }
        store<N>(dx + at + row * cols, values);
        store<N>(dx + at + row * cols + cols, gates);
    });
}

template <typename T, typename F>
__device__ __forceinline__ void backward(const Args& a) {
    if (a.wide) {
        backward_columns<T, F, WIDE<T>>(a);
    } else {
        backward_columns<T, F, 1>(a);
    }
}

#define GATED(name, F)                                    \
    template <typename T>                                 \
    __device__ void name##_forward_of(const Args& a) {    \
        forward<T, F>(a);                                 \
    }                                                     \
    KERNELS(name##_forward, Args, 256, name##_forward_of) \
    template <typename T>                                 \
    __device__ void name##_backward_of(const Args& a) {   \
        backward<T, F>(a);                                \
    }                                                     \
    KERNELS(name##_backward, Args, 256, name##_backward_of)

GATED(geglu, GatedByGelu)
GATED(swiglu, GatedBySilu)

#undef GATED
