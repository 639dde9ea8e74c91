// What a block does with one row of logits, here and in `linear_cross_entropy`.
//
// No `#pragma once`: every kernel.cu that includes this has a namespace of its own in the build for tests.
#include "common.cuh"

template <int N>
struct Count {
    static constexpr int value = N;
};

// Calls `f(col, Count<N>())` for all columns of a row, for N columns side by side from `col` on, shared out
// to the threads `first` of `step`. Where `row + col` is a multiple of 16 bytes N is a whole WIDE<T>. Rows of
// a vocabulary of 30,522 or 50,265 words begin anywhere, so the columns before the first such place, and
// those after the last, come one at a time.
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

// N f32 logits, which are 32 bytes where a unit of halves is 16.
template <int N, typename T>
__device__ __forceinline__ void load_logits(float (&out)[N], const T* from) {
    if constexpr (sizeof(T) * N > 16) {
        load_f32<N>(out, from);
    } else {
        load<N>(out, from);
    }
}

// What a thread knows of its columns so far.
struct Running {
    float max;    // NaN is passed over
    float sum;    // of exp(z - max); NaN when a logit is
    bool beaten;  // whether a logit stands against the label being the first of the largest
};

// What is subtracted in the exponent; a row may hold minus infinity, and a thread nothing else.
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

// Shared memory of a block; `ROOM_BYTES` in cuda.rs.
struct Room {
    double sums[32];
    float maxima[32];
    u32 beaten[32];
    float log_sum_exp;
};

// The parts of a row brought together: each lane of a warp gives one, and gets the whole.
__device__ __forceinline__ void join(float& max, double& sum, u32& beaten) {
    float whole = warp_max(max);
    // Infinity less itself is NaN: an infinite logit shows.
    sum = warp_sum(sum * double(expf(max - shift(whole))));
    beaten = __ballot_sync(ALL_LANES, beaten != 0);
    max = whole;
}

// Loss and score of a row: `found` gets the loss and 1 where the label is the first of the largest, else 0.
// One pass; the sum is f32 over the columns of a thread (a hundred of a vocabulary) and f64 beyond.
// `room.log_sum_exp` may be read after the next barrier.
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

// The gradient of a logit; the label's is a difference, rounded once, after it.
__device__ __forceinline__ float logit_gradient(float z, float log_sum_exp, float scale, bool is_label) {
    float probability = scale * expf(z - log_sum_exp);
    return is_label ? probability - scale : probability;
}
