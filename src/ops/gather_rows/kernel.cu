// Gathering of rows; see mod.rs.
//
// A block has 8 warps; each makes one row of the result. In backward, a warp searches its row in the
// ascending list of gathered rows and sums the gradients of that row in their order, or writes zeros if the
// row was not gathered: the result is written once. `backward_onto`, which adds to an existing gradient,
// skips rows that were not gathered.
#include "common.cuh"

constexpr u32 WARPS = 8;

__device__ __forceinline__ i64 warp_row() { return i64(blockIdx.x) * WARPS + threadIdx.x / WARP; }

struct ForwardArgs {
    const void* x;
    const u32* positions;
    void* y;
    i64 picked;
    i64 cols;
    u32 wide;
};

template <typename T, int N>
__device__ __forceinline__ void copy_row(const ForwardArgs& a, i64 row) {
    const T* from = static_cast<const T*>(a.x) + i64(a.positions[row]) * a.cols;
    T* to = static_cast<T*>(a.y) + row * a.cols;
#pragma unroll 4
    for (i64 col = i64(threadIdx.x % WARP) * N; col < a.cols; col += WARP * N) {
        store_whole<T, N>(to + col, load_whole<T, N>(from + col));
    }
}

template <typename T>
__device__ void forward(const ForwardArgs& a) {
    i64 row = warp_row();
    if (row >= a.picked) return;
    if (a.wide) {
        copy_row<T, WIDE<T>>(a, row);
    } else {
        copy_row<T, 1>(a, row);
    }
}
KERNELS(gather_rows_forward, ForwardArgs, 256, forward)

// `order`, `piece_starts`, `targets` and `target_pieces` are the arrays of `Groups` in
// src/ops/scatter/mod.rs.
struct BackwardArgs {
    const void* dy;
    void* dx;
    const u32* order;
    const u32* piece_starts;
    const u32* targets;
    const u32* target_pieces;
    i64 count;  // number of targets
    i64 tokens;
    i64 cols;
    u32 wide;
};

// Binary search: the index of the first target that is not below `row`.
__device__ __forceinline__ i64 find_target(const BackwardArgs& a, i64 row) {
    i64 low = 0, high = a.count;
    while (low < high) {
        i64 middle = (low + high) / 2;
        if (a.targets[middle] < row) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

template <typename T, int N, bool ONTO>
__device__ __forceinline__ void sum_row(const BackwardArgs& a, i64 row, i64 start, i64 end) {
    const T* dy = static_cast<const T*>(a.dy);
    T* to = static_cast<T*>(a.dx) + row * a.cols;
    for (i64 col = i64(threadIdx.x % WARP) * N; col < a.cols; col += WARP * N) {
        float sum[N] = {};
        if (ONTO) load<N>(sum, to + col);
        for (i64 at = start; at < end; at++) {
            float values[N];
            load<N>(values, dy + i64(a.order[at]) * a.cols + col);
#pragma unroll
            for (int i = 0; i < N; i++) sum[i] += values[i];
        }
        store<N>(to + col, sum);
    }
}

template <typename T, bool ONTO>
__device__ __forceinline__ void backward_row(const BackwardArgs& a) {
    i64 row = warp_row();
    if (row >= a.tokens) return;
    i64 target = find_target(a, row), start = 0, end = 0;
    if (target < a.count && a.targets[target] == row) {
        start = a.piece_starts[a.target_pieces[target]];
        end = a.piece_starts[a.target_pieces[target + 1]];
    }
    if (ONTO && start == end) return;
    if (a.wide) {
        sum_row<T, WIDE<T>, ONTO>(a, row, start, end);
    } else {
        sum_row<T, 1, ONTO>(a, row, start, end);
    }
}

template <typename T>
__device__ void backward(const BackwardArgs& a) {
    backward_row<T, false>(a);
}
KERNELS(gather_rows_backward, BackwardArgs, 256, backward)

template <typename T>
__device__ void backward_onto(const BackwardArgs& a) {
    backward_row<T, true>(a);
}
KERNELS(gather_rows_backward_onto, BackwardArgs, 256, backward_onto)
