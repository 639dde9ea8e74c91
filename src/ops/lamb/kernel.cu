// LAMB; see mod.rs for the formulas.
//
// In the two passes over the buffers, each block processes one chunk of a group. Between them, one block for
// each group adds the sums of squares of its chunks, in an order that depends only on the group's size, and
// computes the group's step size.
#include "../update/chunks.cuh"

// The update `u` of one element; both passes compute the same bits.
__device__ __forceinline__ float change(const UpdateArgs& a, const Chunk& chunk, float p, float m, float v) {
    return fmaf(chunk.segment.decay, p, direction(a, a.factor, m, v));
}

__device__ void advance_moments(const UpdateArgs& a) {
    double* room = reinterpret_cast<double*>(shared_memory());
    Chunk chunk = find_chunk(a);
    float multiplier;
    if (!gradient_multiplier(a, multiplier)) return;
    double parameters = 0.0, updates = 0.0;
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
            double u = change(a, chunk, p[k], m[k], v[k]);
            parameters = fma(double(p[k]), double(p[k]), parameters);
            updates = fma(u, u, updates);
        }
        store<N>(a.first + i, m);
        store<N>(a.second + i, v);
    });
    parameters = block_sum(parameters, room);
    updates = block_sum(updates, room);
    if (threadIdx.x == 0) {
        a.squares[2 * i64(blockIdx.x)] = parameters;
        a.squares[2 * i64(blockIdx.x) + 1] = updates;
    }
}
KERNEL(lamb_advance, UpdateArgs, 256, advance_moments)

__device__ void find_step_size(const UpdateArgs& a) {
    double* room = reinterpret_cast<double*>(shared_memory());
    Segment segment = a.segments[blockIdx.x];
    float multiplier;
    if (!gradient_multiplier(a, multiplier)) return;
    double parameters = 0.0, updates = 0.0;
    i64 chunks = (segment.end - segment.start + CHUNK - 1) / CHUNK;
    for (i64 c = threadIdx.x; c < chunks; c += blockDim.x) {
        parameters += a.squares[2 * (segment.first_chunk + c)];
        updates += a.squares[2 * (segment.first_chunk + c) + 1];
    }
    parameters = block_sum(parameters, room);
    updates = block_sum(updates, room);
    bool adapts = segment.decay != 0.0f && parameters > 0.0 && updates > 0.0;
    if (threadIdx.x == 0) {
        a.step_sizes[blockIdx.x] = float(a.lr * (adapts ? sqrt(parameters / updates) : 1.0)) * segment.lr_scale;
    }
}
KERNEL(lamb_step_sizes, UpdateArgs, 256, find_step_size)

template <typename T>
__device__ void apply(const UpdateArgs& a) {
    Chunk chunk = find_chunk(a);
    float multiplier;
    if (!gradient_multiplier(a, multiplier)) return;
    float step_size = a.step_sizes[chunk.index];
    each_four(a, chunk, [&](i64 i, auto count) {
        constexpr int N = decltype(count)::value;
        float p[N], m[N], v[N];
        load<N>(p, a.parameters + i);
        load<N>(m, a.first + i);
        load<N>(v, a.second + i);
#pragma unroll
        for (int k = 0; k < N; k++) p[k] = fmaf(step_size, -change(a, chunk, p[k], m[k], v[k]), p[k]);
        store<N>(a.parameters + i, p);
        if (a.shadow != nullptr) store<N>(static_cast<T*>(a.shadow) + i, p);
    });
}
KERNELS(lamb_apply, UpdateArgs, 256, apply)
