// Replacement of masked ids by drawn ones; see mod.rs. Each thread of `copy` has a token, each of `put` a
// drawn id.
#include "common.cuh"

struct Args {
    const u32* from;  // [tokens]
    const u32* positions;
    const u32* originals;
    const u32* drawn;
    u32* ids;       // [tokens]
    u32* replaced;  // [tokens]
    i64 tokens;
    i64 masked;
    u32 vocabulary;
};

__device__ __forceinline__ i64 number() { return i64(blockIdx.x) * blockDim.x + threadIdx.x; }

__device__ void copy(const Args& a) {
    i64 t = number();
    if (t >= a.tokens) return;
    a.ids[t] = a.from[t];
    a.replaced[t] = 0;
}
KERNEL(replace_tokens_copy, Args, 256, copy)

// All positions differ, so no two threads write to the same address.
__device__ void put(const Args& a) {
    i64 m = number();
    if (m >= a.masked) return;
    u32 at = a.positions[m], id = min(a.drawn[m], a.vocabulary - 1);
    a.ids[at] = id;
    a.replaced[at] = id != a.originals[m];
}
KERNEL(replace_tokens_put, Args, 256, put)
