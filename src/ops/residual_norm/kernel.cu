// Bias, dropout, residual and layer normalisation; see mod.rs for the formulas, and layer_norm/forward.cuh
// and backward.cuh for the norm.
//
// Forward: a block has 4 warps, each takes a row: it adds up the row, writes the sum as rounded, and
// normalises what it wrote. Backward: a block has 8 warps, which take its `block_rows` rows in turns; the
// kernel is named after the widest row that it holds in registers.
#include "common.cuh"

#include "../layer_norm/forward.cuh"
// Behind it: it takes its columns from there.
#include "../layer_norm/backward.cuh"

struct ForwardArgs {
    const void* x;
    const void* residual;
    const float* bias;    // null where there is none
    const u64* row_keys;  // not read without dropout
    void* sum;
    Norm norm;
    Dropout dropout;
};

// `sum = residual + keep * (x + bias)`, rounded to the type.
template <typename T, int N>
__device__ __forceinline__ void add(const ForwardArgs& a, u64 row_key, i64 col, const Vec<T, N>& x, const Vec<T, N>& residual,
                                    float (&sum)[N]) {
    float bias[N];
    load_or_zeros<N>(bias, a.bias, col);
    if (a.dropout.threshold) {
        float keep[N];
        keep_columns<N>(a.dropout, row_key, col, keep);
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] = fmaf(keep[i], widen(x.v[i]) + bias[i], widen(residual.v[i]));
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] = widen(residual.v[i]) + (widen(x.v[i]) + bias[i]);
    }
#pragma unroll
    for (int i = 0; i < N; i++) sum[i] = widen(narrow<T>(sum[i]));
}

template <typename T>
__device__ __forceinline__ void forward_held(const ForwardArgs& a, i64 row, u64 row_key) {
    constexpr int N = WIDE<T>, CHUNKS = HELD_COLUMNS / WARP / N;
    i64 start = row * a.norm.cols;
    Vec<T, N> x[CHUNKS], residual[CHUNKS];
    float sum[CHUNKS][N];
    // All loads before the first store.
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        i64 col = held_column<N>(c);
        if (col < a.norm.cols) {
            x[c] = load_whole<T, N>(static_cast<const T*>(a.x) + start + col);
            residual[c] = load_whole<T, N>(static_cast<const T*>(a.residual) + start + col);
        }
    }
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        i64 col = held_column<N>(c);
        if (col < a.norm.cols) {
            add<T, N>(a, row_key, col, x[c], residual[c], sum[c]);
            store<N>(static_cast<T*>(a.sum) + start + col, sum[c]);
        }
    }
    normalise_held<T>(a.norm, row, sum);
}

template <typename T, int N>
__device__ __forceinline__ void forward_any(const ForwardArgs& a, i64 row, u64 row_key) {
    i64 start = row * a.norm.cols;
    T* to = static_cast<T*>(a.sum) + start;
    for (i64 col = i64(threadIdx.x % WARP) * N; col < a.norm.cols; col += WARP * N) {
        float sum[N];
        add<T, N>(a, row_key, col, load_whole<T, N>(static_cast<const T*>(a.x) + start + col),
                  load_whole<T, N>(static_cast<const T*>(a.residual) + start + col), sum);
        store<N>(to + col, sum);
    }
    // Each lane reads back what it wrote itself.
    normalise_any<T, N>(a.norm, row, to);
}

template <typename T>
__device__ void forward(const ForwardArgs& a) {
    i64 row = i64(blockIdx.x) * FORWARD_ROWS + threadIdx.x / WARP;
    if (row >= a.norm.rows) return;
    u64 row_key = a.dropout.threshold ? a.row_keys[row] : 0;
    if (!a.norm.wide) {
        forward_any<T, 1>(a, row, row_key);
    } else if (a.norm.cols > HELD_COLUMNS) {
        forward_any<T, WIDE<T>>(a, row, row_key);
    } else {
        forward_held<T>(a, row, row_key);
    }
}
KERNELS(residual_norm_forward, ForwardArgs, 128, forward)

struct BackwardArgs {
    void* dropped;        // the gradient of x where there is dropout; else that is `norm.dx`
    const u64* row_keys;  // not read without dropout
    NormBackward norm;
    Dropout dropout;
};

// Drops the gradient of the sum, and leaves what was dropped for the gradient of the bias.
template <typename T>
struct Drop {
    const BackwardArgs& a;

    template <int N>
    __device__ __forceinline__ void operator()(i64 row, i64 col, float (&values)[N]) const {
        if (!a.dropout.threshold) return;
        float keep[N];
        keep_columns<N>(a.dropout, a.row_keys[row], col, keep);
#pragma unroll
        for (int i = 0; i < N; i++) values[i] *= keep[i];
        store<N>(static_cast<T*>(a.dropped) + row * a.norm.cols + col, values);
    }
};

template <typename T, int COLUMNS>
__device__ __forceinline__ void backward_up_to(const BackwardArgs& a) {
    backward_held<T, WIDE<T>, COLUMNS / int(WARP) / WIDE<T>, 3>(a.norm, Drop<T>{a});
}
template <typename T>
__device__ void backward_256(const BackwardArgs& a) {
    backward_up_to<T, 256>(a);
}
KERNELS(residual_norm_backward_256, BackwardArgs, 256, backward_256)

template <typename T>
__device__ void backward_512(const BackwardArgs& a) {
    backward_up_to<T, 512>(a);
}
KERNELS(residual_norm_backward_512, BackwardArgs, 256, backward_512)

template <typename T>
__device__ void backward_768(const BackwardArgs& a) {
    backward_up_to<T, 768>(a);
}
// In half types two blocks fit without spills, if the compiler is told.
KERNEL(residual_norm_backward_768_f32, BackwardArgs, 256, backward_768<float>)
KERNEL_BESIDE(residual_norm_backward_768_bf16, BackwardArgs, 256, 2, backward_768<bf16>)
KERNEL_BESIDE(residual_norm_backward_768_f16, BackwardArgs, 256, 2, backward_768<f16>)

template <typename T>
__device__ void backward_1024(const BackwardArgs& a) {
    backward_up_to<T, 1024>(a);
}
KERNELS(residual_norm_backward_1024, BackwardArgs, 256, backward_1024)

template <typename T>
__device__ void backward_rows(const BackwardArgs& a) {
    if (a.norm.wide) {
        backward_any<T, WIDE<T>, 3>(a.norm, Drop<T>{a});
    } else {
        backward_any<T, 1, 3>(a.norm, Drop<T>{a});
    }
}
KERNELS(residual_norm_backward_any, BackwardArgs, 256, backward_rows)
