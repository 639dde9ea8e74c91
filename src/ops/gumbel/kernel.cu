// Gumbel-max; see mod.rs for the formulas.
//
// One block samples one row. A thread processes four columns at a time, those of one index of the stream. The
// kernel is bound by arithmetic (ten rounds of the generator for four values, two logarithms for each value),
// so rows without alignment may be read one value at a time.
#include "common.cuh"

struct Args {
    const void* logits;  // [rows, cols]
    const u64* keys;
    u32* ids;  // [rows]
    i64 cols;
    i64 stride;  // values from one row of logits to the next
    u32 key[2];
    u32 id[2];
    u32 wide;
};

// The noise `g` from one word of the stream.
__device__ __forceinline__ float gumbel(u32 word) {
    bool upper = word >> 31;
    float distance = (float(upper ? ~word : word) + 0.5f) * (1.0f / 4294967296.0f);
    float y = upper ? 1.0f - distance : distance;
    float lost = upper ? (distance - (1.0f - y)) / y : 0.0f;
    return -logf(lost - logf(y));
}

// Keeps the larger score with its column; of equal scores the first column.
__device__ __forceinline__ void take(float& best, u32& at, float score, u32 column) {
    if (score > best || (score == best && column < at)) {
        best = score;
        at = column;
    }
}

__device__ __forceinline__ void warp_take(float& best, u32& at) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
        float score = __shfl_xor_sync(ALL_LANES, best, mask);
        u32 column = __shfl_xor_sync(ALL_LANES, at, mask);
        take(best, at, score, column);
    }
}

template <typename T>
__device__ void sample(const Args& a) {
    float* room = reinterpret_cast<float*>(shared_memory());  // [32], then [32] columns
    u32* columns = reinterpret_cast<u32*>(room + 32);
    const T* row = static_cast<const T*>(a.logits) + i64(blockIdx.x) * a.stride;
    u64 key = a.keys[blockIdx.x] << 24;
    float best = -INFINITY;
    u32 at = 0;
    for (i64 col = 4 * threadIdx.x; col < a.cols; col += 4 * blockDim.x) {
        float z[4];
        if (a.wide && col + 4 <= a.cols) {
            load<4>(z, row + col);
        } else {
            for (int i = 0; i < 4; i++) z[i] = col + i < a.cols ? widen(row[col + i]) : -INFINITY;
        }
        u64 index = key | u64(col / 4);
        Words words = philox(u32(index), u32(index >> 32), a.id[0], a.id[1], a.key[0], a.key[1]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float score = z[i] + gumbel(words.w[i]);
            // The columns of a thread ascend, so the first of equal scores is kept.
            if (score > best) {
                best = score;
                at = u32(col) + i;
            }
        }
    }
    warp_take(best, at);
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    if (lane == 0) {
        room[warp] = best;
        columns[warp] = at;
    }
    __syncthreads();
    if (warp > 0) return;
    bool used = lane < blockDim.x / WARP;
    best = used ? room[lane] : -INFINITY;
    at = used ? columns[lane] : 0;
    warp_take(best, at);
    if (lane == 0) a.ids[blockIdx.x] = at;
}
KERNELS(gumbel_sample, Args, 256, sample)
