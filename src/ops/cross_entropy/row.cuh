// The work of a block on one row of logits, in this op and in `linear_cross_entropy`.
//
// No `#pragma once`: in the build for tests, each kernel.cu that includes this file does so in its own
// namespace.
#include "common.cuh"

template <int N>
struct Count {
    static constexpr int value = N;
};

// Calls `f(col, Count<N>())` for the columns `col..col + N`, until all columns of a row are covered. The
// columns are split over `step` threads, of which this is number `first`. N is WIDE<T> for columns that begin
// at a multiple of 16 bytes. Rows of a vocabulary of 30,522 or 50,265 words have no alignment, so the columns
// before the first and after the last such group are passed one at a time.
template <typename T, typename F>
__device__ __forceinline__ void each_column(const T* row, i64 cols, i64 first, i64 step, F f) {
    constexpr i64 N = WIDE<T>;
    i64 before = i64((16 - reinterpret_cast<uintptr_t>(row) % 16) % 16 / sizeof(T));
    before = min(before, cols);
    i64 units = (cols - before) / N, after = before + units * N;
    if (first < before) f(first, Count<1>());
    for (i64 unit = first; unit < units; unit += step) f(before + unit * N, Count<N>());
    if (first < cols - after) f(after + first, Count<1>());
}

// Loads N logits. For f32 logits with a bf16 or f16 gradient these are 32 bytes, because N values of the
// gradient are 16.
template <int N, typename T>
__device__ __forceinline__ void load_logits(float (&out)[N], const T* from) {
    if constexpr (sizeof(T) * N > 16) {
        load_f32<N>(out, from);
    } else {
        load<N>(out, from);
    }
}

// The results of a thread for its columns so far.
struct Running {
    float max;    // largest logit; NaN is ignored
    float sum;    // sum of exp(z - max); NaN if a logit is NaN
    bool beaten;  // true if some logit shows that the label is not the first of the largest logits
};

// The number that is subtracted in the exponent: the maximum, but 0 if all logits of a thread are minus
// infinity.
__device__ __forceinline__ float shift(float max) { return max == -INFINITY ? 0.0f : max; }

template <int N>
__device__ __forceinline__ void add_logits(Running& running, const float (&z)[N], i64 col, i64 label, float at_label) {
    float largest = z[0];
#pragma unroll
    for (int i = 1; i < N; i++) largest = fmaxf(largest, z[i]);
    if (largest > running.max) {
        running.sum *= expf(running.max - largest);
        running.max = largest;
    }
    float by = shift(running.max), sum = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++) {
        sum += expf(z[i] - by);
        running.beaten |= col + i < label ? !(z[i] < at_label) : z[i] > at_label;
    }
    running.sum += sum;
}

// Shared memory of a block; its size is `ROOM_BYTES` in cuda.rs.
struct Room {
    double sums[32];
    float maxima[32];
    u32 beaten[32];
    float log_sum_exp;
};

// Combines the partial results of the lanes of a warp; every lane gets the combined result.
__device__ __forceinline__ void join(float& max, double& sum, u32& beaten) {
    float whole = warp_max(max);
    // Infinity minus infinity is NaN, so an infinite logit makes the loss NaN.
    sum = warp_sum(sum * double(expf(max - shift(whole))));
    beaten = __ballot_sync(ALL_LANES, beaten != 0);
    max = whole;
}

// Computes the results of a row in one pass: `found` gets the loss, and 1 if the label is the first of the
// largest logits, else 0. The sum is f32 over the columns of a thread (about a hundred for a vocabulary) and
// f64 over the threads. `room.log_sum_exp` may be read after the next barrier.
template <typename T>
__device__ __forceinline__ void row_entropy(Room& room, const T* row, i64 cols, i64 label, double* found, float* log_sum_exp) {
    float at_label = widen(row[label]);
    Running running = {-INFINITY, 0.0f, at_label != at_label};
    each_column(row, cols, threadIdx.x, blockDim.x, [&](i64 col, auto count) {
        float z[decltype(count)::value];
        load_logits(z, row + col);
        add_logits(running, z, col, label, at_label);
    });
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    float max = running.max;
    double sum = running.sum;
    u32 beaten = running.beaten;
    join(max, sum, beaten);
    if (lane == 0) {
        room.maxima[warp] = max;
        room.sums[warp] = sum;
        room.beaten[warp] = beaten;
    }
    __syncthreads();
    if (warp > 0) return;
    bool used = lane < blockDim.x / WARP;
    max = used ? room.maxima[lane] : -INFINITY;
    sum = used ? room.sums[lane] : 0.0;
    beaten = used ? room.beaten[lane] : 0;
    join(max, sum, beaten);
    if (lane > 0) return;
    double whole = double(max) + log(sum);
    found[0] = whole - double(at_label);
    found[1] = beaten ? 0.0 : 1.0;
    *log_sum_exp = float(whole);
    room.log_sum_exp = float(whole);
}

// The gradient of a logit; for the label it is a difference, which is rounded once, after the subtraction.
__device__ __forceinline__ float logit_gradient(float z, float log_sum_exp, float scale, bool is_label) {
    float probability = scale * expf(z - log_sum_exp);
    return is_label ? probability - scale : probability;
}
