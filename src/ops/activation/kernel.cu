// Bias and an activation `F`: `y = F(x + bias)`, and the gradients; see activation.rs for the formulas, columns.cuh for
// the assignment of values to threads.
//
// F provides `forward(u)`, the function, and `slope(from, bias)`, its derivative. `from` is `x` for GELU; for tanh and
// ReLU it is `y`, which already includes the bias.
#include "columns.cuh"

// Same layout as `Args` in `cuda.rs`.
struct Args {
    const void* dy;         // backward only
    const void* from;       // x; in backward x or y, see `slope`
    const float* bias;      // null without a bias, or if backward does not need it
    void* to;               // y or dx
    float* dbias_partials;  // [blocks of rows, cols], backward only
    Columns columns;
    u32 wide;
};

template <int N>
__device__ __forceinline__ void load_bias(const Args& a, float (&bias)[N]) {
    i64 col = lane_column<N>();
#pragma unroll
    for (int i = 0; i < N; i++) bias[i] = a.bias && col < a.columns.cols ? a.bias[col + i] : 0.0f;
}

template <typename T, typename F, int N>
__device__ __forceinline__ void activate_columns(const Args& a) {
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
__device__ __forceinline__ void activate(const Args& a) {
    if (a.wide) {
        activate_columns<T, F, WIDE<T>>(a);
    } else {
        activate_columns<T, F, 1>(a);
    }
}

template <typename T, typename F, int N>
__device__ __forceinline__ void activate_backward_columns(const Args& a) {
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
__device__ __forceinline__ void activate_backward(const Args& a) {
    if (a.wide) {
        activate_backward_columns<T, F, WIDE<T>>(a);
    } else {
        activate_backward_columns<T, F, 1>(a);
    }
}

#include "gelu.cuh"

struct Relu {
    // NaN stays NaN.
    static __device__ __forceinline__ float forward(float u) { return u <= 0.0f ? 0.0f : u; }
    static __device__ __forceinline__ float slope(float y, float) { return y > 0.0f ? 1.0f : 0.0f; }
};

struct Tanh {
    static __device__ __forceinline__ float forward(float u) { return tanhf(u); }
    static __device__ __forceinline__ float slope(float y, float) { return 1.0f - y * y; }
};

#define ACTIVATION(name, F)                                       \
    template <typename T>                                         \
    __device__ void name##_forward_of(const Args& a) {            \
        activate<T, F>(a);                                        \
    }                                                             \
    KERNELS(name##_forward, Args, 256, name##_forward_of)         \
    template <typename T>                                         \
    __device__ void name##_backward_of(const Args& a) {           \
        activate_backward<T, F>(a);                               \
    }                                                             \
    KERNELS(name##_backward, Args, 256, name##_backward_of)

ACTIVATION(gelu, Gelu)
ACTIVATION(gelu_tanh, GeluTanh)
ACTIVATION(relu, Relu)
ACTIVATION(tanh, Tanh)

#undef ACTIVATION
