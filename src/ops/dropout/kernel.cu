// Dropout; see mod.rs for which element is dropped.
//
// A block has 8 warps and takes `block_rows` rows of 32 N columns: a lane holds N columns side by side, and the warps take the
// rows in turns.
#include "common.cuh"

constexpr u32 WARPS = 8;

struct Args {
    const void* x;
    const u64* row_keys;
    void* y;
    i64 rows;
    i64 cols;
    i64 block_rows;
    Dropout dropout;
    u32 wide;
};

template <typename T, int N>
__device__ __forceinline__ void apply_columns(const Args& a) {
    i64 col = (i64(blockIdx.x) * WARP + threadIdx.x % WARP) * N;
    if (col >= a.cols) return;
    const T* x = static_cast<const T*>(a.x);
    T* y = static_cast<T*>(a.y);
    i64 first = i64(blockIdx.y) * a.block_rows, end = min(first + a.block_rows, a.rows);
    for (i64 row = first + threadIdx.x / WARP; row < end; row += WARPS) {
        float values[N], keep[N];
        load<N>(values, x + row * a.cols + col);
        keep_columns<N>(a.dropout, a.row_keys[row], col, keep);
#pragma unroll
        for (int i = 0; i < N; i++) values[i] *= keep[i];
        store<N>(y + row * a.cols + col, values);
    }
}

template <typename T>
__device__ void apply(const Args& a) {
    if (a.wide) {
        apply_columns<T, WIDE<T>>(a);
    } else {
        apply_columns<T, 1>(a);
    }
}
KERNELS(dropout_apply, Args, 256, apply)
