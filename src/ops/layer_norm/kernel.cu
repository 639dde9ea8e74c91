// Layer normalisation; see mod.rs for the formulas, and forward.cuh and backward.cuh for the work of a warp.
//
// Forward: a block has 4 warps; each processes one row. Backward: a block has at most 8 warps, which process
// its `block_rows` rows one after the other, or several at the same time, and hold rows of up to 2,048
// columns in registers. The kernels named `_earlier` (`MLMTRAIN_NORMS=earlier`) have one warp per row; they
// will be removed when the times of both have been compared on a GPU.
#include "common.cuh"

#include "forward.cuh"
// After forward.cuh, whose definitions it uses.
#include "backward.cuh"
#include "earlier.cuh"

struct ForwardArgs {
    const void* x;
    Norm norm;
};

template <typename T>
__device__ __forceinline__ void forward_held(const ForwardArgs& a, i64 row) {
    constexpr int N = WIDE<T>, CHUNKS = HELD_COLUMNS / WARP / N;
    const T* x = static_cast<const T*>(a.x) + row * a.norm.cols;
    float values[CHUNKS][N];
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        if (held_column<N>(c) < a.norm.cols) load<N>(values[c], x + held_column<N>(c));
    }
    normalise_held<T>(a.norm, row, values);
}

template <typename T>
__device__ void forward(const ForwardArgs& a) {
    i64 row = i64(blockIdx.x) * FORWARD_ROWS + threadIdx.x / WARP;
    if (row >= a.norm.rows) return;
    const T* x = static_cast<const T*>(a.x) + row * a.norm.cols;
    if (!a.norm.wide) {
        normalise_any<T, 1>(a.norm, row, x);
    } else if (a.norm.cols > HELD_COLUMNS) {
        normalise_any<T, WIDE<T>>(a.norm, row, x);
    } else {
        forward_held<T>(a, row);
    }
}
KERNELS(layer_norm_forward, ForwardArgs, 128, forward)

template <typename T>
__device__ void backward_of_held(const NormBackward& a) {
    backward_held<T, 2>(a, Nothing());
}
// Compiled so that two blocks fit on a multiprocessor.
KERNEL_BESIDE(layer_norm_backward_held_f32, NormBackward, 256, 2, backward_of_held<float>)
KERNEL_BESIDE(layer_norm_backward_held_bf16, NormBackward, 256, 2, backward_of_held<bf16>)
KERNEL_BESIDE(layer_norm_backward_held_f16, NormBackward, 256, 2, backward_of_held<f16>)

template <typename T>
__device__ void backward_rows(const NormBackward& a) {
    if (a.wide) {
        backward_any<T, WIDE<T>, 2>(a, Nothing());
    } else {
        backward_any<T, 1, 2>(a, Nothing());
    }
}
KERNELS(layer_norm_backward_any, NormBackward, 256, backward_rows)

template <typename T, int COLUMNS>
__device__ __forceinline__ void earlier_up_to(const NormBackward& a) {
    backward_by_one_warp<T, WIDE<T>, COLUMNS / int(WARP) / WIDE<T>, 2>(a, Nothing());
}
template <typename T>
__device__ void earlier_768(const NormBackward& a) {
    earlier_up_to<T, 768>(a);
}
// For bf16 and f16, two blocks fit on a multiprocessor without register spills if the compiler is asked for
// it.
KERNEL(layer_norm_backward_768_earlier_f32, NormBackward, 256, earlier_768<float>)
KERNEL_BESIDE(layer_norm_backward_768_earlier_bf16, NormBackward, 256, 2, earlier_768<bf16>)
KERNEL_BESIDE(layer_norm_backward_768_earlier_f16, NormBackward, 256, 2, earlier_768<f16>)

template <typename T>
__device__ void earlier_1024(const NormBackward& a) {
    earlier_up_to<T, 1024>(a);
}
KERNELS(layer_norm_backward_1024_earlier, NormBackward, 256, earlier_1024)
