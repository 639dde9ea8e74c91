// Dropout; see mod.rs for the decision which elements are dropped, columns.cuh for the assignment of values
// to threads.
#include "columns.cuh"

struct Args {
    const void* x;
    const u64* row_keys;
    void* y;
    Columns columns;
    Dropout dropout;
    u32 wide;
};

template <typename T, int N>
__device__ __forceinline__ void apply_columns(const Args& a) {
    const T* x = static_cast<const T*>(a.x);
    T* y = static_cast<T*>(a.y);
    each_row<N>(a.columns, [&](i64 row, i64 at) {
        float values[N], keep[N];
        load<N>(values, x + at);
        keep_columns<N>(a.dropout, a.row_keys[row], lane_column<N>(), keep);
#pragma unroll
        for (int i = 0; i < N; i++) values[i] *= keep[i];
        store<N>(y + at, values);
    });
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
