// Bias, dropout, residual and layer normalisation; see mod.rs for the formulas, and layer_norm/forward.cuh
// and backward.cuh for the norm.
//
// Forward: a block has 4 warps, each with one row: a warp computes the sum, writes it rounded, and normalises
// the rounded sum. Backward: as in layer_norm; the kernels named `_earlier` also compute the decisions of
// dropout again.
#include "common.cuh"

#include "../layer_norm/forward.cuh"
// After forward.cuh, whose definitions it uses.
#include "../layer_norm/backward.cuh"
#include "../layer_norm/earlier.cuh"

struct ForwardArgs {
    const void* x;
    const void* residual;
    const float* bias;    // null for no bias
    const u64* row_keys;  // not read without dropout
    void* sum;
    unsigned char* kept;  // decisions of dropout, see `byte_of`; not written without dropout
    Norm norm;
    Dropout dropout;
};

// The index of the byte with the decisions for `col` and the other columns of its group of eight. Each row
// has whole bytes; bit `c % 8` of byte `c / 8` is 1 if column `c` is kept. `at` is the index of the value in
// its tensor; if lanes have eight columns, the number of columns is a multiple of 8.
template <int N>
__device__ __forceinline__ i64 byte_of(i64 cols, i64 row, i64 col, i64 at) {
    return N == 8 ? at / 8 : row * ((cols + 7) / 8) + col / 8;
}
template <int N>
__device__ __forceinline__ u32 decisions(const unsigned char* kept, i64 cols, i64 row, i64 col, i64 at) {
    u32 bits = kept[byte_of<N>(cols, row, col, at)];
    return N == 8 ? bits : bits >> (col % 8);
}

// The factor of column `i` of a lane, from the decisions `bits` of the lane's columns.
__device__ __forceinline__ float factor_of(const Dropout& dropout, u32 bits, int i) {
    return bits >> i & 1 ? dropout.scale : 0.0f;
}

// `sum = residual + keep * (x + bias)`, rounded to T.
template <typename T, int N>
__device__ __forceinline__ void add(const ForwardArgs& a, i64 row, u64 row_key, i64 col, const Vec<T, N>& x,
                                    const Vec<T, N>& residual, float (&sum)[N]) {
    float bias[N];
    load_or_zeros<N>(bias, a.bias, col);
    if (a.dropout.threshold) {
        u32 bits = keep_bits(a.dropout, row_key, u32(col / 8));
        // Every lane with a column of this group of eight has computed all eight decisions; one lane writes
        // them.
        if (N == 8 || col % 8 == 0) {
            a.kept[byte_of<N>(a.norm.cols, row, col, row * a.norm.cols + col)] = static_cast<unsigned char>(bits);
        }
        if (N < 8) bits >>= col % 8;
#pragma unroll
        for (int i = 0; i < N; i++) {
            sum[i] = fmaf(factor_of(a.dropout, bits, i), widen(x.v[i]) + bias[i], widen(residual.v[i]));
        }
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
    // All loads come before the first store.
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
            add<T, N>(a, row, row_key, col, x[c], residual[c], sum[c]);
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
        add<T, N>(a, row, row_key, col, load_whole<T, N>(static_cast<const T*>(a.x) + start + col),
                  load_whole<T, N>(static_cast<const T*>(a.residual) + start + col), sum);
        store<N>(to + col, sum);
    }
    // Each lane reads only values that it wrote itself.
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
    void* dropped;        // with dropout, the gradient of x; without, that is `norm.dx`
    const u64* row_keys;        // read by the kernels that compute decisions again
    const unsigned char* kept;  // decisions kept by forward; read by all other kernels
    NormBackward norm;
    Dropout dropout;
};

// Applies dropout to the gradient of the sum, writes the result as the gradient of x, and leaves it in
// `values` for the gradient of the bias. Uses the decisions kept by forward; with DRAWS, computes them again.
template <typename T, bool DRAWS>
struct Drop {
    const BackwardArgs& a;

    // The decisions for a lane's columns, beginning at bit 0.
    template <int N>
    __device__ __forceinline__ u32 ahead(const Place& place) const {
        if (DRAWS || !a.dropout.threshold) return 0;
        return decisions<N>(a.kept, a.norm.cols, place.row, place.col, place.at);
    }
    template <int N>
    __device__ __forceinline__ void operator()(const Place& place, float (&values)[N], u32 ahead) const {
        if (!a.dropout.threshold) return;
        if constexpr (DRAWS) {
            float keep[N];
            keep_columns<N>(a.dropout, a.row_keys[place.row], place.col, keep);
#pragma unroll
            for (int i = 0; i < N; i++) values[i] *= keep[i];
        } else {
#pragma unroll
            for (int i = 0; i < N; i++) values[i] *= factor_of(a.dropout, ahead, i);
        }
        store<N>(static_cast<T*>(a.dropped) + place.at, values);
    }
};

template <typename T>
__device__ void backward_of_held(const BackwardArgs& a) {
    backward_held<T, 3>(a.norm, Drop<T, false>{a});
}
// Compiled so that two blocks fit on a multiprocessor.
KERNEL_BESIDE(residual_norm_backward_held_f32, BackwardArgs, 256, 2, backward_of_held<float>)
KERNEL_BESIDE(residual_norm_backward_held_bf16, BackwardArgs, 256, 2, backward_of_held<bf16>)
KERNEL_BESIDE(residual_norm_backward_held_f16, BackwardArgs, 256, 2, backward_of_held<f16>)

template <typename T>
__device__ void backward_rows(const BackwardArgs& a) {
    if (a.norm.wide) {
        backward_any<T, WIDE<T>, 3>(a.norm, Drop<T, false>{a});
    } else {
        backward_any<T, 1, 3>(a.norm, Drop<T, false>{a});
    }
}
KERNELS(residual_norm_backward_any, BackwardArgs, 256, backward_rows)

template <typename T, int COLUMNS>
__device__ __forceinline__ void earlier_up_to(const BackwardArgs& a) {
    backward_by_one_warp<T, WIDE<T>, COLUMNS / int(WARP) / WIDE<T>, 3>(a.norm, Drop<T, true>{a});
}
template <typename T>
__device__ void earlier_768(const BackwardArgs& a) {
    earlier_up_to<T, 768>(a);
}
KERNEL(residual_norm_backward_768_earlier_f32, BackwardArgs, 256, earlier_768<float>)
KERNEL_BESIDE(residual_norm_backward_768_earlier_bf16, BackwardArgs, 256, 2, earlier_768<bf16>)
KERNEL_BESIDE(residual_norm_backward_768_earlier_f16, BackwardArgs, 256, 2, earlier_768<f16>)

template <typename T>
__device__ void earlier_1024(const BackwardArgs& a) {
    earlier_up_to<T, 1024>(a);
}
KERNELS(residual_norm_backward_1024_earlier, BackwardArgs, 256, earlier_1024)
