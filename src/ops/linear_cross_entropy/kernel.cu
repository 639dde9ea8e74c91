// Loss and gradient of rows of logits; see mod.rs. cuBLASLt computes the products before and after this
// kernel.
//
// One block for each row: a first pass for the loss, a second pass for the gradient, which finds the row in
// the L2 cache if the rows being processed fit into it (f32, 50,000 columns: 256 rows on an H100).
#include "../cross_entropy/row.cuh"

struct Args {
    const float* logits;  // [rows, cols]
    const u32* labels;
    void* gradient;      // [rows, cols]; an f32 gradient is written over the logits
    double* found;       // [rows, 2]
    float* log_sum_exp;  // [rows]
    i64 cols;
    i64 stride;  // number of values from one row to the next, in logits and gradient
    float scale;
};

template <typename T>
__device__ void loss_and_gradient(const Args& a) {
    Room& room = *reinterpret_cast<Room*>(shared_memory());
    i64 m = blockIdx.x, label = a.labels[m];
    const float* row = a.logits + m * a.stride;
    T* gradient = static_cast<T*>(a.gradient) + m * a.stride;
    row_entropy(room, row, a.cols, label, a.found + 2 * m, a.log_sum_exp + m);
    // This barrier also separates the reads of the first pass by other threads from the writes of the
    // gradient, which may be written over the logits.
    __syncthreads();
    float log_sum_exp = room.log_sum_exp;
    // Both matrices begin at multiples of 16 bytes, so if N values of the gradient are aligned, their logits
    // are, too.
    each_column(gradient, a.cols, threadIdx.x, blockDim.x, [&](i64 col, auto count) {
        constexpr int N = decltype(count)::value;
        float z[N];
        load_logits(z, row + col);
#pragma unroll
        for (int i = 0; i < N; i++) z[i] = logit_gradient(z[i], log_sum_exp, a.scale, col + i == label);
        store<N>(gradient + col, z);
    });
}
KERNELS(linear_cross_entropy, Args, 512, loss_and_gradient)
