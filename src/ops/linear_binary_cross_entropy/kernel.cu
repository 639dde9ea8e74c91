// A linear map to one logit and its binary cross-entropy; see mod.rs for the formulas.
//
// Rows: one warp for each row. Totals: one block adds the results of the rows, in an order that depends only
// on the number of rows. Gradients: threads have columns, as assigned in columns.cuh, because the gradient of
// the weight is a sum over rows.
#include "columns.cuh"

// Results whose addresses are null are not computed.
struct RowsArgs {
    const void* x;  // [rows, cols]
    const float* weight;
    const float* bias;
    const u32* labels;
    float* logits;
    double* found;  // [rows, 4]
    float* slopes;  // gradient of the loss with respect to the logit, times the scale
    i64 rows;
    i64 cols;
    float scale;
};

__device__ __forceinline__ float sigmoid(float z) { return 1.0f / (1.0f + expf(-z)); }

template <typename T>
__device__ void rows(const RowsArgs& a) {
    u32 lane = threadIdx.x % WARP;
    i64 m = i64(blockIdx.x) * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (m >= a.rows) return;
    const T* row = static_cast<const T*>(a.x) + m * a.cols;
    float z = 0.0f;
    for (i64 col = lane; col < a.cols; col += WARP) z = fmaf(widen(row[col]), a.weight[col], z);
    z = warp_sum(z) + a.bias[0];
    if (lane > 0) return;
    if (a.logits) a.logits[m] = z;
    if (!a.found) return;
    bool is_one = a.labels[m] == 1, told = z > 0.0f;
    double wide = z;
    // Unlike a maximum, this keeps a NaN.
    double above = wide < 0.0 ? 0.0 : wide;
    double* found = a.found + 4 * m;
    found[0] = above - (is_one ? wide : 0.0) + log1p(exp(-fabs(wide)));
    found[1] = told == is_one ? 1.0 : 0.0;
    found[2] = told ? 1.0 : 0.0;
    found[3] = told && is_one ? 1.0 : 0.0;
    // sigmoid(z) - 1 is computed as -sigmoid(-z), which loses no digits if the prediction is correct.
    if (a.slopes) a.slopes[m] = is_one ? -a.scale * sigmoid(-z) : a.scale * sigmoid(z);
}
KERNELS(linear_binary_rows, RowsArgs, 256, rows)

struct TotalsArgs {
    const double* found;  // [rows, 4]
    const float* slopes;  // null without gradients
    double* totals;       // [4]
    float* dbias;
    i64 rows;
};

__device__ void totals(const TotalsArgs& a) {
    double* room = reinterpret_cast<double*>(shared_memory());
    for (int i = 0; i < 4; i++) {
        double sum = 0.0;
        for (i64 m = threadIdx.x; m < a.rows; m += blockDim.x) sum += a.found[4 * m + i];
        sum = block_sum(sum, room);
        if (threadIdx.x == 0) a.totals[i] = sum;
    }
    if (!a.slopes) return;
    double sum = 0.0;
    for (i64 m = threadIdx.x; m < a.rows; m += blockDim.x) sum += a.slopes[m];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) a.dbias[0] += float(sum);
}
KERNEL(linear_binary_totals, TotalsArgs, 512, totals)

struct GradientsArgs {
    const void* x;  // [rows, cols]
    const float* weight;
    const float* slopes;
    void* dx;                 // [rows, cols]
    float* dweight_partials;  // [blocks of rows, cols]
    Columns columns;
    u32 wide;
};

template <typename T, int N>
__device__ __forceinline__ void gradients_of(const GradientsArgs& a) {
    const T* x = static_cast<const T*>(a.x);
    T* dx = static_cast<T*>(a.dx);
    i64 col = lane_column<N>();
    float weight[N], sums[N] = {};
#pragma unroll
    for (int i = 0; i < N; i++) weight[i] = col < a.columns.cols ? a.weight[col + i] : 0.0f;
    each_row<N>(a.columns, [&](i64 row, i64 at) {
        float values[N], slope = a.slopes[row];
        load<N>(values, x + at);
#pragma unroll
        for (int i = 0; i < N; i++) {
            sums[i] = fmaf(slope, values[i], sums[i]);
            values[i] = slope * weight[i];
        }
        store<N>(dx + at, values);
    });
    write_column_sums<N>(a.columns, sums, a.dweight_partials);
}

template <typename T>
__device__ void gradients(const GradientsArgs& a) {
    if (a.wide) {
        gradients_of<T, WIDE<T>>(a);
    } else {
        gradients_of<T, 1>(a);
    }
}
KERNELS(linear_binary_gradients, GradientsArgs, 256, gradients)
