// Adds the first row of each segment to its rows; see mod.rs.
#include "common.cuh"
#include "segments.cuh"

template <typename T>
__device__ void forward(const Segments& a) {
    i64 col = i64(blockIdx.y) * blockDim.x + threadIdx.x;
    if (col >= a.cols) return;
    u32 start = a.bounds[blockIdx.x], end = a.bounds[blockIdx.x + 1];
    if (start == end) return;
    const T* x = static_cast<const T*>(a.from) + col;
    T* y = static_cast<T*>(a.to) + col;
    float first = widen(x[i64(start) * a.cols]);
#pragma unroll 8
    for (u32 row = start; row < end; row++) y[i64(row) * a.cols] = narrow<T>(widen(x[i64(row) * a.cols]) + first);
}
KERNELS(first_row_forward, Segments, 128, forward)

template <typename T>
__device__ void backward(const Segments& a) {
    i64 col = i64(blockIdx.y) * blockDim.x + threadIdx.x;
    if (col >= a.cols) return;
    u32 start = a.bounds[blockIdx.x], end = a.bounds[blockIdx.x + 1];
    if (start == end) return;
    const T* dy = static_cast<const T*>(a.from) + col;
    T* dx = static_cast<T*>(a.to) + col;
    float first = widen(dy[i64(start) * a.cols]), sum = first;
#pragma unroll 8
    for (u32 row = start + 1; row < end; row++) {
        T value = dy[i64(row) * a.cols];
        dx[i64(row) * a.cols] = value;
        sum += widen(value);
    }
    dx[i64(start) * a.cols] = narrow<T>(first + sum);
}
KERNELS(first_row_backward, Segments, 128, backward)
