// What a block of an update does: one chunk of the flat buffers, read and written 16 bytes at a time.
//
// No `#pragma once`: every kernel.cu that includes this has a namespace of its own in the build for tests.
#include "common.cuh"

// Elements of a chunk, the last of a segment may be shorter; `CHUNK` in cuda.rs.
constexpr i64 CHUNK = 16384;

// A group. Twin of the rows of the table in cuda.rs.
struct Segment {
    i64 start;
    i64 end;
    i64 first_chunk;  // its chunks' blocks follow one another
    float decay;     // per unit of learning rate
    float lr_scale;  // of the learning rate
};

// Twin of `UpdateArgs` in cuda.rs.
struct UpdateArgs {
    float* parameters;
    const float* gradients;
    float* first;
    float* second;
    void* shadow;             // null where there is none
    const Segment* segments;  // [segment_count]
    const double* norm;       // [1]; null for no clipping
    double* squares;          // LAMB: [chunks, 2]
    float* step_sizes;        // LAMB: [segment_count]
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
    i64 index;  // of the segment
    i64 start;
    i64 end;
};

// The chunk of this block: the last segment whose chunks begin at this block or before.
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

// What gradients are multiplied by, as `Clip::multiplier`; false where nothing is to be updated.
__device__ __forceinline__ bool gradient_multiplier(const UpdateArgs& a, float& multiplier) {
    multiplier = a.multiplier;
    if (a.norm == nullptr) return true;
    double norm = *a.norm, given = a.multiplier;
    double clip = a.max_norm > 0.0 ? fmin(a.max_norm / (__dmul_rn(norm, given) + 1e-6), 1.0) : 1.0;
    multiplier = float(clip * given);
    // What is not finite is not zero less itself.
    return norm - norm == 0.0;
}

template <int N>
struct Count {
    static constexpr int value = N;
};

// Calls `f(i, Count<N>())` for N elements from `i` on, until the chunk is covered: fours, and single ones
// before the first multiple of four and after the last, or throughout where a buffer does not begin at a
// multiple of 16 bytes. (A half type's four are 8 bytes: they are an eighth of the traffic, and eight f32 of
// four buffers would take twice the registers.)
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

// `m += (1 - beta1) * (g - m)` and `v = beta2 * v + (1 - beta2) * g^2`, with `g` multiplied first.
__device__ __forceinline__ void advance(const UpdateArgs& a, float multiplier, float g, float& m, float& v) {
    // Not to be fused with the difference: the CPU's bits.
    g = __fmul_rn(g, multiplier);
    m = fmaf(a.rest1, g - m, m);
    v = fmaf(a.beta2, v, a.rest2 * g * g);
}

// `factor * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)`.
__device__ __forceinline__ float direction(const UpdateArgs& a, float factor, float m, float v) {
    return factor * m / fmaf(sqrtf(v), a.inverse_root, a.eps);
}
