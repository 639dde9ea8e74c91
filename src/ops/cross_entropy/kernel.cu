// Softmax cross-entropy; see mod.rs for the formulas.
//
// Forward: one block for each row, which is read once. Totals: one block adds the results of the rows, in an
// order that depends only on the number of rows. Backward: one block for each row, or for a part of a long
// row; the gradient is written over the logits.
#include "row.cuh"

struct ForwardArgs {
    const void* logits;  // [rows, cols]
    const u32* labels;
    double* found;       // [rows, 2]
    float* log_sum_exp;  // [rows]
    i64 cols;
    i64 stride;  // number of values from one row of logits to the next
};

template <typename T>
__device__ void forward(const ForwardArgs& a) {
    Room& room = *reinterpret_cast<Room*>(shared_memory());
    i64 m = blockIdx.x;
    row_entropy(room, static_cast<const T*>(a.logits) + m * a.stride, a.cols, a.labels[m], a.found + 2 * m, a.log_sum_exp + m);
}
KERNELS(cross_entropy_forward, ForwardArgs, 512, forward)

struct TotalsArgs {
    const double* found;  // [rows, 2]
    double* totals;       // [2]
    i64 rows;
};

__device__ void totals(const TotalsArgs& a) {
    double* room = reinterpret_cast<double*>(shared_memory());
    double loss = 0.0, correct = 0.0;
    for (i64 m = threadIdx.x; m < a.rows; m += blockDim.x) {
        loss += a.found[2 * m];
        correct += a.found[2 * m + 1];
    }
    loss = block_sum(loss, room);
    correct = block_sum(correct, room);
    if (threadIdx.x == 0) {
        a.totals[0] = loss;
        a.totals[1] = correct;
    }
}
KERNEL(cross_entropy_totals, TotalsArgs, 512, totals)

struct BackwardArgs {
    void* logits;  // [rows, cols], overwritten by the gradient
    const u32* labels;
    const float* log_sum_exp;
    i64 cols;
    float scale;
};

template <typename T>
__device__ void backward(const BackwardArgs& a) {
    i64 m = blockIdx.x, label = a.labels[m];
    T* row = static_cast<T*>(a.logits) + m * a.cols;
    float log_sum_exp = a.log_sum_exp[m];
    i64 first = i64(blockIdx.y) * blockDim.x + threadIdx.x, step = i64(gridDim.y) * blockDim.x;
    each_column(row, a.cols, first, step, [&](i64 col, auto count) {
        constexpr int N = decltype(count)::value;
        float z[N];
        load<N>(z, row + col);
#pragma unroll
        for (int i = 0; i < N; i++) z[i] = logit_gradient(z[i], log_sum_exp, a.scale, col + i == label);
        store<N>(row + col, z);
    });
}
KERNELS(cross_entropy_backward, BackwardArgs, 512, backward)
