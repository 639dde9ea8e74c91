// The forward pass of layer normalisation, for the ops that end in one; see layer_norm/mod.rs for the
// formulas. Each warp processes one row.
//
// Each kernel.cu includes this file once, in the build as C++ into its own namespace, so there is no
// `#pragma once`. Every product that is added to something is an explicit fmaf, so that the compiler cannot
// choose otherwise in one of the ops, and all ops give the same bits.

// Largest number of columns that a warp holds in registers, 32 values in a lane. Wider rows are read again
// for each pass, from the cache.
constexpr i64 HELD_COLUMNS = 1024;

constexpr u32 FORWARD_ROWS = 4;  // rows of a block

// Same layout as `Norm` in cuda.rs.
struct Norm {
    const float* weight;
    const float* bias;  // null for no bias
    void* y;
    float* mean;  // null for RMSNorm, which subtracts no mean
    float* rstd;
    i64 rows;
    i64 cols;
    float eps;
    u32 wide;
};

// The first of the N columns that a lane holds of chunk `chunk`.
template <int N>
__device__ __forceinline__ int held_column(int chunk) {
    return (chunk * int(WARP) + int(threadIdx.x % WARP)) * N;
}

// Loads values of an optional vector; zeros if it is null.
template <int N>
__device__ __forceinline__ void load_or_zeros(float (&to)[N], const float* from, i64 col) {
    if (from) {
        load_vector<N>(to, from + col);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = 0.0f;
    }
}

__device__ __forceinline__ float mean_of(const Norm& norm, float lane_sum) {
    return norm.mean ? warp_sum(lane_sum) / float(norm.cols) : 0.0f;
}

__device__ __forceinline__ float rstd_of(const Norm& norm, float lane_squares) {
    return 1.0f / sqrtf(warp_sum(lane_squares) / float(norm.cols) + norm.eps);
}

__device__ __forceinline__ void save_moments(const Norm& norm, i64 row, float mean, float rstd) {
    if (threadIdx.x % WARP == 0) {
        if (norm.mean) norm.mean[row] = mean;
        norm.rstd[row] = rstd;
    }
}

// Normalises a row that is held in registers; values past its end are not read.
template <typename T, int N, int CHUNKS>
__device__ __forceinline__ void normalise_held(const Norm& norm, i64 row, float (&x)[CHUNKS][N]) {
    T* y = static_cast<T*>(norm.y) + row * norm.cols;
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        if (held_column<N>(c) < norm.cols) {
#pragma unroll
            for (int i = 0; i < N; i++) sum += x[c][i];
        }
    }
    float mean = mean_of(norm, sum);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        if (held_column<N>(c) < norm.cols) {
#pragma unroll
            for (int i = 0; i < N; i++) squares = fmaf(x[c][i] - mean, x[c][i] - mean, squares);
        }
    }
    float rstd = rstd_of(norm, squares);
    save_moments(norm, row, mean, rstd);
    // All loads of the vectors come before the first store: the compiler must assume that a store changes the
    // vectors.
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        i64 col = held_column<N>(c);
        if (col < norm.cols) {
            float weight[N], bias[N];
            load_vector<N>(weight, norm.weight + col);
            load_or_zeros<N>(bias, norm.bias, col);
#pragma unroll
            for (int i = 0; i < N; i++) x[c][i] = fmaf((x[c][i] - mean) * rstd, weight[i], bias[i]);
        }
    }
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        if (held_column<N>(c) < norm.cols) store<N>(y + held_column<N>(c), x[c]);
    }
}

// Normalises a row of any width. `x` may have been written by the same warp: each lane reads the columns that
// it writes.
template <typename T, int N>
__device__ __forceinline__ void normalise_any(const Norm& norm, i64 row, const T* x) {
    i64 first = i64(threadIdx.x % WARP) * N;
    T* y = static_cast<T*>(norm.y) + row * norm.cols;
    float values[N], sum = 0.0f, squares = 0.0f;
    for (i64 col = first; col < norm.cols; col += WARP * N) {
        load<N>(values, x + col);
#pragma unroll
        for (int i = 0; i < N; i++) sum += values[i];
    }
    float mean = mean_of(norm, sum);
    for (i64 col = first; col < norm.cols; col += WARP * N) {
        load<N>(values, x + col);
#pragma unroll
        for (int i = 0; i < N; i++) squares = fmaf(values[i] - mean, values[i] - mean, squares);
    }
    float rstd = rstd_of(norm, squares);
    save_moments(norm, row, mean, rstd);
    for (i64 col = first; col < norm.cols; col += WARP * N) {
        float weight[N], bias[N];
        load<N>(values, x + col);
        load_vector<N>(weight, norm.weight + col);
        load_or_zeros<N>(bias, norm.bias, col);
#pragma unroll
        for (int i = 0; i < N; i++) values[i] = fmaf((values[i] - mean) * rstd, weight[i], bias[i]);
        store<N>(y + col, values);
    }
}
