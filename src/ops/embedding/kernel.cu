// The sum of embeddings; see mod.rs.
//
// Forward: a block has 8 warps; each makes the row of one token.
//
// Backward runs two kernels for each table. `Groups` (src/ops/scatter/mod.rs) has sorted the tokens by id and
// split the tokens of each id into pieces. In the first kernel, a block of 128 threads processes one piece: a
// thread sums N columns over the tokens of the piece, directly into the gradient if it is the only piece of
// its id, else into a row of partial sums. In the second kernel, a block processes one id: if the id has
// several pieces, the block adds their partial sums to the gradient, in order.
#include "common.cuh"

constexpr u32 WARPS = 8;

struct ForwardArgs {
    const u32* ids[3];  // [tokens] each
    const float* tables[3];  // null for an absent table, which adds nothing
    void* y;
    i64 tokens;
    i64 cols;
    u32 wide;
};

template <typename T, int N>
__device__ __forceinline__ void add_three(const ForwardArgs& a, i64 token) {
    const float* from[3];
#pragma unroll
    for (int t = 0; t < 3; t++) from[t] = a.tables[t] ? a.tables[t] + i64(a.ids[t][token]) * a.cols : nullptr;
    T* to = static_cast<T*>(a.y) + token * a.cols;
#pragma unroll 2
    for (i64 col = i64(threadIdx.x % WARP) * N; col < a.cols; col += WARP * N) {
        float sum[N], position[N] = {}, type[N] = {};
        load_vector<N>(sum, from[0] + col);
        if (from[1]) load_vector<N>(position, from[1] + col);
        if (from[2]) load_vector<N>(type, from[2] + col);
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] = sum[i] + position[i] + type[i];
        store<N>(to + col, sum);
    }
}

template <typename T>
__device__ void forward(const ForwardArgs& a) {
    i64 token = i64(blockIdx.x) * WARPS + threadIdx.x / WARP;
    if (token >= a.tokens) return;
    // Most of the traffic is the f32 tables: they are read 16 bytes at a time, and as many values of y are
    // written.
    if (a.wide) {
        add_three<T, WIDE<float>>(a, token);
    } else {
        add_three<T, 1>(a, token);
    }
}
KERNELS(embedding_forward, ForwardArgs, 256, forward)

constexpr u32 PIECE_ROWS = 128;  // most rows of a piece, as in scatter/mod.rs
// Number of rows that are loaded before the first is added, so that their memory latencies overlap.
constexpr int BATCH = 8;

struct BackwardArgs {
    const void* dy;
    const u32* ids;
    const u32* order;
    const u32* piece_starts;
    const u32* target_pieces;
    float* dtable;    // [ids, cols], added to
    float* partials;  // sums of the pieces of ids with several pieces; see `slot`
    i64 pieces;       // number of pieces, or an upper bound of it: additional pieces are empty
    i64 cols;
    u32 wide;
};

// The row of `partials` for piece `p` of an id with several pieces. All pieces of an id except the last have
// PIECE_ROWS rows. So the starts of two full pieces, rounded up to a multiple of PIECE_ROWS, differ: full
// pieces get even rows. A last piece with fewer rows gets the odd row after that of the piece before it. No
// two pieces share a row, and 2 * (rows / PIECE_ROWS + 1) rows are enough, regardless of the number of single
// pieces between them.
__device__ __forceinline__ i64 slot(const u32* piece_starts, i64 p) {
    bool full = piece_starts[p + 1] - piece_starts[p] == PIECE_ROWS;
    u32 start = piece_starts[full ? p : p - 1];
    return 2 * i64((start + PIECE_ROWS - 1) / PIECE_ROWS) + (full ? 0 : 1);
}

template <typename T, int N>
__device__ __forceinline__ void add_row(float (&sum)[N], const Vec<T, N>& row) {
#pragma unroll
    for (int i = 0; i < N; i++) sum[i] += widen(row.v[i]);
}

template <typename T, int N>
__device__ __forceinline__ void sum_piece(const BackwardArgs& a) {
    i64 piece = blockIdx.x, col = (i64(blockIdx.y) * blockDim.x + threadIdx.x) * N;
    if (col >= a.cols) return;
    const T* dy = static_cast<const T*>(a.dy) + col;
    u32 at = a.piece_starts[piece], end = a.piece_starts[piece + 1];
    if (at == end) return;
    u32 id = a.ids[a.order[at]];
    bool goes_on = end < a.piece_starts[a.pieces] && a.ids[a.order[end]] == id;
    bool alone = !(piece > 0 && a.ids[a.order[at - 1]] == id) && !goes_on;
    float sum[N] = {};
    for (; at + BATCH <= end; at += BATCH) {
        Vec<T, N> rows[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) rows[i] = load_whole<T, N>(dy + i64(a.order[at + i]) * a.cols);
#pragma unroll
        for (int i = 0; i < BATCH; i++) add_row<T, N>(sum, rows[i]);
    }
    for (; at < end; at++) add_row<T, N>(sum, load_whole<T, N>(dy + i64(a.order[at]) * a.cols));
    if (alone) {
        float before[N];
        float* to = a.dtable + i64(id) * a.cols + col;
        load_vector<N>(before, to);
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] += before[i];
        store_vector<N>(to, sum);
    } else {
        store_vector<N>(a.partials + slot(a.piece_starts, piece) * a.cols + col, sum);
    }
}

template <typename T>
__device__ void sum_pieces(const BackwardArgs& a) {
    if (a.wide) {
        sum_piece<T, WIDE<T>>(a);
    } else {
        sum_piece<T, 1>(a);
    }
}
KERNELS(embedding_sum_pieces, BackwardArgs, 128, sum_pieces)

__device__ void add_pieces(const BackwardArgs& a) {
    u32 first = a.target_pieces[blockIdx.x], end = a.target_pieces[blockIdx.x + 1];
    i64 col = i64(blockIdx.y) * blockDim.x + threadIdx.x;
    if (end - first <= 1 || col >= a.cols) return;
    float sum = 0.0f;
#pragma unroll 8
    for (u32 piece = first; piece < end; piece++) sum += a.partials[slot(a.piece_starts, piece) * a.cols + col];
    a.dtable[i64(a.ids[a.order[a.piece_starts[first]]]) * a.cols + col] += sum;
}
KERNEL(embedding_add_pieces, BackwardArgs, 128, add_pieces)
