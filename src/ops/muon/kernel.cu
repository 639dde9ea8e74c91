// Muon; see muon.rs for the formulas. The products between these kernels are those of cuBLASLt.
//
// All kernels work on one matrix, which is a segment; each block has a chunk of its values, or of those of
// `gram`. Sums are computed in f64, in an order that depends only on the size of the matrix.
#include "../update/chunks.cuh"

// Same layout as `MuonArgs` in cuda.rs.
struct MuonArgs {
    UpdateArgs update;  // `rest1` is that of the momentum; squares: [chunks]; step_sizes: [1], 1 / |u|
    float* sums;        // directions `u`, then f32 sums of products
    void* x;
    void* gram;
    float* square;
    i64 index;  // of the segment
    i64 gram_values;
    float share;  // of the momentum in the direction
    float step_size;
    u32 is_first;  // 1 if `sums` are directions, to be divided by their norm
    u32 padding;
};

constexpr float A = 3.4445f, B = -4.775f, C = 2.0315f;
constexpr double EPS = 1e-7;

__device__ void average(const MuonArgs& a) {
    double* room = reinterpret_cast<double*>(shared_memory());
    Segment segment = a.update.segments[a.index];
    i64 values = segment.end - segment.start, start = i64(blockIdx.x) * CHUNK, end = min(start + CHUNK, values);
    float multiplier;
    bool is_finite = gradient_multiplier(a.update, multiplier);
    double squares = 0.0;
    for (i64 i = start + threadIdx.x; i < end; i += blockDim.x) {
        float u = 0.0f;
        if (is_finite) {
            float gradient[1];
            load_gradients<1>(gradient, a.update, segment, segment.start + i);
            float* momentum = a.update.first + segment.start + i;
            // Must not be fused with the subtractions below, so that the result has the same bits as on the CPU.
            float g = __fmul_rn(gradient[0], multiplier);
            float m = fmaf(a.update.rest1, g - *momentum, *momentum);
            *momentum = m;
            u = fmaf(a.share, m - g, g);
        }
        a.sums[i] = u;
        squares = fma(double(u), double(u), squares);
    }
    squares = block_sum(squares, room);
    if (threadIdx.x == 0) a.update.squares[blockIdx.x] = squares;
}
KERNEL(muon_average, MuonArgs, 256, average)

__device__ void find_scale(const MuonArgs& a) {
    double* room = reinterpret_cast<double*>(shared_memory());
    Segment segment = a.update.segments[a.index];
    i64 chunks = (segment.end - segment.start + CHUNK - 1) / CHUNK;
    double squares = 0.0;
    for (i64 c = threadIdx.x; c < chunks; c += blockDim.x) squares += a.update.squares[c];
    squares = block_sum(squares, room);
    if (threadIdx.x == 0) a.update.step_sizes[0] = float(1.0 / fmax(sqrt(squares), EPS));
}
KERNEL(muon_scale, MuonArgs, 256, find_scale)

template <typename T>
__device__ void round_sums(const MuonArgs& a) {
    Segment segment = a.update.segments[a.index];
    i64 values = segment.end - segment.start, start = i64(blockIdx.x) * CHUNK, end = min(start + CHUNK, values);
    float scale = a.is_first ? a.update.step_sizes[0] : 1.0f;
    for (i64 i = start + threadIdx.x; i < end; i += blockDim.x) {
        static_cast<T*>(a.x)[i] = narrow<T>(a.sums[i] * scale);
    }
}
KERNELS(muon_round, MuonArgs, 256, round_sums)

template <typename T>
__device__ void polynomial(const MuonArgs& a) {
    i64 start = i64(blockIdx.x) * CHUNK, end = min(start + CHUNK, a.gram_values);
    T* gram = static_cast<T*>(a.gram);
    for (i64 i = start + threadIdx.x; i < end; i += blockDim.x) {
        gram[i] = narrow<T>(fmaf(B, widen(gram[i]), C * a.square[i]));
    }
}
KERNELS(muon_polynomial, MuonArgs, 256, polynomial)

template <typename T>
__device__ void expand(const MuonArgs& a) {
    Segment segment = a.update.segments[a.index];
    i64 values = segment.end - segment.start, start = i64(blockIdx.x) * CHUNK, end = min(start + CHUNK, values);
    for (i64 i = start + threadIdx.x; i < end; i += blockDim.x) {
        a.sums[i] = A * widen(static_cast<const T*>(a.x)[i]);
    }
}
KERNELS(muon_expand, MuonArgs, 256, expand)

template <typename T>
__device__ void change(const MuonArgs& a) {
    Segment segment = a.update.segments[a.index];
    i64 values = segment.end - segment.start, start = i64(blockIdx.x) * CHUNK, end = min(start + CHUNK, values);
    float multiplier;
    if (!gradient_multiplier(a.update, multiplier)) return;
    // Computed in f64 and rounded once, as on the CPU, for equal bits.
    float decay = float(a.update.lr * double(segment.decay)) * segment.lr_scale;
    float* parameters = a.update.parameters + segment.start;
    for (i64 i = start + threadIdx.x; i < end; i += blockDim.x) {
        float p = parameters[i];
        p -= fmaf(decay, p, a.step_size * widen(static_cast<const T*>(a.x)[i]));
        parameters[i] = p;
        if (a.update.shadow != nullptr) static_cast<T*>(a.update.shadow)[segment.start + i] = narrow<T>(p);
    }
}
KERNELS(muon_change, MuonArgs, 256, change)
