// The mean of each segment; see mod.rs.
#include "common.cuh"
#include "segments.cuh"

template <typename T>
__device__ void forward(const Segments& a) {
    i64 col = i64(blockIdx.y) * blockDim.x + threadIdx.x;
    if (col >= a.cols) return;
    u32 start = a.bounds[blockIdx.x], end = a.bounds[blockIdx.x + 1];
    const T* x = static_cast<const T*>(a.from) + col;
    float sum = 0.0f;
#pragma unroll 8
    for (u32 row = start; row < end; row++) sum += widen(x[i64(row) * a.cols]);
    float count = float(end > start ? end - start : 1);
    static_cast<T*>(a.to)[i64(blockIdx.x) * a.cols + col] = narrow<T>(sum / count);
}
KERNELS(segment_mean_forward, Segments, 128, forward)

template <typename T>
__device__ void backward(const Segments& a) {
    i64 col = i64(blockIdx.y) * blockDim.x + threadIdx.x;
    if (col >= a.cols) return;
    u32 start = a.bounds[blockIdx.x], end = a.bounds[blockIdx.x + 1];
    if (start == end) return;
    float dy = widen(static_cast<const T*>(a.from)[i64(blockIdx.x) * a.cols + col]);
    T dx = narrow<T>(dy / float(end - start));
    T* to = static_cast<T*>(a.to) + col;
    for (u32 row = start; row < end; row++) to[i64(row) * a.cols] = dx;
}
KERNELS(segment_mean_backward, Segments, 128, backward)
