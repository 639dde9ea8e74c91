// The work of one block of an optimizer update: one chunk of the flat buffers, read and written 16 bytes at a
// time.
//
// No `#pragma once`: in the build for tests, each kernel.cu that includes this file does so in its own
// namespace.
#include "common.cuh"

// Number of elements in a chunk; the last chunk of a segment may be shorter. The same as `CHUNK` in cuda.rs.
constexpr i64 CHUNK = 16384;

// A group of parameters. Same layout as a row of the table in cuda.rs.
struct Segment {
    i64 start;
    i64 end;
    i64 first_chunk;         // number of its first chunk; its chunks have consecutive numbers
    float decay;             // weight decay per unit of learning rate
    float lr_scale;          // factor of the learning rate
    i64 gradient_start;      // of its gradients in their buffer
    i64 are_gradients_half;  // 1 if that is the bf16 buffer
};

// Same layout as `UpdateArgs` in cuda.rs.
struct UpdateArgs {
    float* parameters;
    const float* gradients;
    const bf16* half_gradients;  // null if all gradients are f32
    float* first;
    float* second;            // null if the rule has one state tensor
    void* shadow;             // null if there is no shadow
    const Segment* segments;  // [segment_count]
    const double* norm;       // [1]; null for no clipping
    double* squares;          // LAMB: [chunks, 2]; StableAdamW: [chunks]
    float* step_sizes;        // LAMB, StableAdamW: [segment_count]
    i64 segment_count;
    double max_norm;
    double lr;
    float multiplier;
    float rest1;
    float beta2;
    float rest2;
    float inverse_root;
    float eps;
    float factor;  // of the first moment: lr / (1 - beta1^t) for AdamW, 1 / (1 - beta1^t) for LAMB
    u32 wide;
};

struct Chunk {
    Segment segment;
    i64 index;  // index of the segment
    i64 start;
    i64 end;
};

// Finds the chunk of this block: binary search for the last segment whose first chunk is at most the block's
// number.
__device__ __forceinline__ Chunk find_chunk(const UpdateArgs& a) {
    i64 block = blockIdx.x, low = 0, high = a.segment_count - 1;
    while (low < high) {
        i64 middle = (low + high + 1) / 2;
        if (a.segments[middle].first_chunk <= block) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Segment segment = a.segments[low];
    i64 start = segment.start + (block - segment.first_chunk) * CHUNK;
    return {segment, low, start, min(start + CHUNK, segment.end)};
}

// Computes the factor of the gradients, as `Clip::multiplier` does; returns false if the norm is not finite,
// and nothing is to be updated.
__device__ __forceinline__ bool gradient_multiplier(const UpdateArgs& a, float& multiplier) {
    multiplier = a.multiplier;
    if (a.norm == nullptr) return true;
    double norm = *a.norm, given = a.multiplier;
    double clip = a.max_norm > 0.0 ? fmin(a.max_norm / (__dmul_rn(norm, given) + 1e-6), 1.0) : 1.0;
    multiplier = float(clip * given);
    // False for infinity and NaN, whose difference with themselves is NaN.
    return norm - norm == 0.0;
}

template <int N>
struct Count {
    static constexpr int value = N;
};

// Calls `f(i, Count<N>())` for the elements `i..i + N` until the chunk is covered. N is 4, but 1 for the
// elements before the first and after the last multiple of four, and for all elements if a buffer does not
// begin at a multiple of 16 bytes. (Four values of a 16-bit shadow are only 8 bytes; but the shadow is an
// eighth of the traffic, and eight f32 values of four buffers would take twice the registers.)
template <typename F>
__device__ __forceinline__ void each_four(const UpdateArgs& a, const Chunk& chunk, F f) {
    i64 first = threadIdx.x, step = blockDim.x;
    if (!a.wide) {
        for (i64 i = chunk.start + first; i < chunk.end; i += step) f(i, Count<1>());
        return;
    }
    i64 before = min((chunk.start + 3) / 4 * 4, chunk.end);
    i64 fours = (chunk.end - before) / 4, after = before + 4 * fours;
    if (first < before - chunk.start) f(chunk.start + first, Count<1>());
    for (i64 four = first; four < fours; four += step) f(before + 4 * four, Count<4>());
    if (first < chunk.end - after) f(after + first, Count<1>());
}

// Loads N gradients, those of the elements `i..i + N` of the segment's parameters.
template <int N>
__device__ __forceinline__ void load_gradients(float (&g)[N], const UpdateArgs& a, const Segment& of, i64 i) {
    i64 at = of.gradient_start + (i - of.start);
    if (of.are_gradients_half) {
        load<N>(g, a.half_gradients + at);
    } else {
        load<N>(g, a.gradients + at);
    }
}

// `m += (1 - beta1) * (g - m)` and `v = beta2 * v + (1 - beta2) * g^2`, with `g` multiplied first.
__device__ __forceinline__ void advance(const UpdateArgs& a, float multiplier, float g, float& m, float& v) {
    // Must not be fused with the subtraction below, so that the result has the same bits as on the CPU.
    g = __fmul_rn(g, multiplier);
    m = fmaf(a.rest1, g - m, m);
    v = fmaf(a.beta2, v, a.rest2 * g * g);
}

// `factor * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)`.
__device__ __forceinline__ float direction(const UpdateArgs& a, float factor, float m, float v) {
    return factor * m / fmaf(sqrtf(v), a.inverse_root, a.eps);
}
