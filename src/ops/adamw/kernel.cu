// AdamW; see mod.rs for the formulas.
//
// Each block processes one chunk of a group, in one pass over all buffers.
#include "../update/chunks.cuh"

template <typename T>
__device__ void update(const UpdateArgs& a) {
    Chunk chunk = find_chunk(a);
    float multiplier;
    if (!gradient_multiplier(a, multiplier)) return;
    // Computed in f64 and rounded once, as on the CPU, for equal bits.
    float scale = chunk.segment.lr_scale;
    float decay = float(a.lr * double(chunk.segment.decay)) * scale, factor = a.factor * scale;
    each_four(a, chunk, [&](i64 i, auto count) {
        constexpr int N = decltype(count)::value;
        float p[N], g[N], m[N], v[N];
        load<N>(p, a.parameters + i);
        load_gradients<N>(g, a, chunk.segment, i);
        load<N>(m, a.first + i);
        load<N>(v, a.second + i);
#pragma unroll
        for (int k = 0; k < N; k++) {
            advance(a, multiplier, g[k], m[k], v[k]);
            // The decay is part of the change: as a factor of 1 - 1e-6 it would lose most of its digits.
            p[k] -= fmaf(decay, p[k], direction(a, factor, m[k], v[k]));
        }
        store<N>(a.parameters + i, p);
        store<N>(a.first + i, m);
        store<N>(a.second + i, v);
        if (a.shadow != nullptr) store<N>(static_cast<T*>(a.shadow) + i, p);
    });
}
KERNELS(adamw_update, UpdateArgs, 256, update)
