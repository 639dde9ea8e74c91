// Column sums, for the gradient of a bias; see mod.rs, and columns.cuh for the assignment of values to
// threads. cuBLASLt computes the products.
#include "columns.cuh"

struct ColumnSumsArgs {
    const void* values;  // [rows, cols]
    float* partials;     // [blocks of rows, cols]
    Columns columns;
    u32 lane_values;  // N, the values that a lane reads at once: those of 16 bytes, 2 or 1
};

template <typename T, int N>
__device__ __forceinline__ void sum_columns(const ColumnSumsArgs& a) {
    const T* values = static_cast<const T*>(a.values);
    float sums[N] = {};
    each_row<N, 4>(a.columns, [&](i64, i64 at) {
        float of_row[N];
        load<N>(of_row, values + at);
#pragma unroll
        for (int i = 0; i < N; i++) sums[i] += of_row[i];
    });
    write_column_sums<N>(a.columns, sums, a.partials);
}

template <typename T>
__device__ void column_sums(const ColumnSumsArgs& a) {
    if (a.lane_values == WIDE<T>) {
        sum_columns<T, WIDE<T>>(a);
    } else if (a.lane_values == 2) {
        sum_columns<T, 2>(a);
    } else {
        sum_columns<T, 1>(a);
    }
}
KERNELS(linear_column_sums, ColumnSumsArgs, 256, column_sums)
