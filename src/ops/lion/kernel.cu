// Lion; see lion.rs for the formulas.
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
    float decay = float(a.lr * double(chunk.segment.decay)) * scale, step_size = a.factor * scale;
    each_four(a, chunk, [&](i64 i, auto count) {
        constexpr int N = decltype(count)::value;
        float p[N], g[N], m[N];
        load<N>(p, a.parameters + i);
        load_gradients<N>(g, a, chunk.segment, i);
        load<N>(m, a.first + i);
#pragma unroll
        for (int k = 0; k < N; k++) {
            // Must not be fused with the subtractions below, so that the result has the same bits as on the CPU.
            float gradient = __fmul_rn(g[k], multiplier);
            float direction = fmaf(a.rest1, gradient - m[k], m[k]);
            float step = direction == 0.0f ? 0.0f : copysignf(step_size, direction);
            p[k] -= fmaf(decay, p[k], step);
            m[k] = fmaf(a.rest2, gradient - m[k], m[k]);
        }
        store<N>(a.parameters + i, p);
        store<N>(a.first + i, m);
        if (a.shadow != nullptr) store<N>(static_cast<T*>(a.shadow) + i, p);
    });
}
KERNELS(lion_update, UpdateArgs, 256, update)
