// StableAdamW; see stable_adamw.rs for the formulas.
//
// In the two passes over the buffers, each block processes one chunk of a group. Between them, one block for
// each group adds the sums of squares of its chunks, in an order that depends only on the group's size, and
// computes the factor of the group's learning rate, which is stored in `step_sizes`.
#include "../update/chunks.cuh"

__device__ void advance_moments(const UpdateArgs& a) {
    double* room = reinterpret_cast<double*>(shared_memory());
    Chunk chunk = find_chunk(a);
    float multiplier;
    if (!gradient_multiplier(a, multiplier)) return;
    double squares = 0.0;
    each_four(a, chunk, [&](i64 i, auto count) {
        constexpr int N = decltype(count)::value;
        float g[N], m[N], v[N];
        load_gradients<N>(g, a, chunk.segment, i);
        load<N>(m, a.first + i);
        load<N>(v, a.second + i);
#pragma unroll
        for (int k = 0; k < N; k++) {
            advance(a, multiplier, g[k], m[k], v[k]);
            double ratio = g[k] * multiplier / fmaxf(sqrtf(v[k]) * a.inverse_root, a.eps);
            squares = fma(ratio, ratio, squares);
        }
        store<N>(a.first + i, m);
        store<N>(a.second + i, v);
    });
    squares = block_sum(squares, room);
    if (threadIdx.x == 0) a.squares[blockIdx.x] = squares;
}
KERNEL(stable_adamw_advance, UpdateArgs, 256, advance_moments)

__device__ void find_clip(const UpdateArgs& a) {
    double* room = reinterpret_cast<double*>(shared_memory());
    Segment segment = a.segments[blockIdx.x];
    float multiplier;
    if (!gradient_multiplier(a, multiplier)) return;
    double squares = 0.0;
    i64 values = segment.end - segment.start, chunks = (values + CHUNK - 1) / CHUNK;
    for (i64 c = threadIdx.x; c < chunks; c += blockDim.x) squares += a.squares[segment.first_chunk + c];
    squares = block_sum(squares, room);
    if (threadIdx.x == 0) a.step_sizes[blockIdx.x] = float(1.0 / fmax(sqrt(squares / double(values)), 1.0));
}
KERNEL(stable_adamw_clips, UpdateArgs, 256, find_clip)

template <typename T>
__device__ void apply(const UpdateArgs& a) {
    Chunk chunk = find_chunk(a);
    float multiplier;
    if (!gradient_multiplier(a, multiplier)) return;
    float scale = chunk.segment.lr_scale * a.step_sizes[chunk.index];
    float decay = float(a.lr * double(chunk.segment.decay)) * scale, factor = a.factor * scale;
    each_four(a, chunk, [&](i64 i, auto count) {
        constexpr int N = decltype(count)::value;
        float p[N], m[N], v[N];
        load<N>(p, a.parameters + i);
        load<N>(m, a.first + i);
        load<N>(v, a.second + i);
#pragma unroll
        for (int k = 0; k < N; k++) p[k] -= fmaf(decay, p[k], direction(a, factor, m[k], v[k]));
        store<N>(a.parameters + i, p);
        if (a.shadow != nullptr) store<N>(static_cast<T*>(a.shadow) + i, p);
    });
}
KERNELS(stable_adamw_apply, UpdateArgs, 256, apply)
