// Loss and gradient of rows of logits; see mod.rs. The products around it are the library's.
//
// A block is a row: one pass for the loss, a second for the gradient, which finds the row in the second-level
// cache where the rows at work fit it (f32, 50,000 columns: 256 rows on an H100).
#include "../cross_entropy/row.cuh"

struct Args {
    const float* logits;  // [rows, cols]
    const u32* labels;
    void* gradient;      // [rows, cols]; the memory of the logits where it is f32
    double* found;       // [rows, 2]
    float* log_sum_exp;  // [rows]
    i64 cols;
    i64 stride;  // values from one row to the next, of logits and gradient
    float scale;
};

template <typename T>
__device__ void loss_and_gradient(const Args& a) {
    Room& room = *reinterpret_cast<Room*>(shared_memory());
    i64 m = blockIdx.x, label = a.labels[m];
    const float* row = a.logits + m * a.stride;
    T* gradient = static_cast<T*>(a.gradient) + m * a.stride;
    row_entropy(room, row, a.cols, label, a.found + 2 * m, a.log_sum_exp + m);
    // The last read of a logit by another thread is before it, too: the gradient may be written over the
    // logits.
    __syncthreads();
    float log_sum_exp = room.log_sum_exp;
    // Both matrices begin at multiples of 16 bytes: where a unit of the gradient does, its logits do.
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
