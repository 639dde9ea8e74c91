// Attention over packed rows; see mod.rs for the formulas.
//
// A block takes a tile of 64 rows of one segment (blockIdx.x, see tiles.rs) and one head (blockIdx.y) and
// goes through the rows of the other side of the segment that it sees; sums stay in registers, no score is
// ever in global memory, and no two blocks write the same element.
//
//   forward           a tile of queries, all keys and values    o, log-sum-exp
//   backward_queries  a tile of queries, all keys and values    dq, and delta = rowsum(do o) for the next
//   backward_keys     a tile of keys, all queries               dk, dv
//
// Half types with a head size that the tensor cores like are in `tensor_forward.cuh` and
// `tensor_backward.cuh` (4 warps of 16 rows each, rows of the other side streamed through shared memory); f32
// and every other head size in `plain.cuh`.
#include "common.cuh"
#include "mma.cuh"

struct Args {
    const void* q;
    const void* k;
    const void* v;
    void* o;
    const void* d_out;
    void* dq;
    void* dk;
    void* dv;
    float* log_sum_exp;  // [T, H]
    float* delta;        // [T, H]
    const u32* tiles;    // start and end of the segment, first row of the tile, squares of the segments before
    const u64* token_keys;
    u32* kept;           // [H, squares, 8]: what dropout has decided, see `kept_at`
    i64 squares;         // 16 queries by 16 keys each, of all segments
    i64 hidden;
    Dropout dropout;
    u32 heads;
    u32 head_size;
    float scale;
    u32 window;  // the farthest that a row sees; EVERYTHING without a window
};

constexpr u32 EVERYTHING = 0xffffffff;

constexpr int ROWS = 64;  // of a tile: `TILE_ROWS` in tiles.rs

// Rows of the batch: those of the segment, and the first of the tile; and the squares of the segments before.
struct Tile {
    u32 start, end, first, squares;
};
__device__ __forceinline__ Tile tile_of(const Args& a) {
    const u32* bounds = a.tiles + 4 * i64(blockIdx.x);
    return {bounds[0], bounds[1], bounds[2], bounds[3]};
}

// Rows of the other side, counted in the segment, that some row of the tile sees: whole tiles, but for the last.
struct Span {
    u32 first, end;
};
__device__ __forceinline__ Span span_of(const Args& a, const Tile& tile) {
    u32 rows = tile.end - tile.start, own = tile.first - tile.start, after = rows - own;
    u32 first = own > a.window ? (own - a.window) / ROWS * ROWS : 0;
    return {first, after > ROWS && after - ROWS > a.window ? own + ROWS + a.window : rows};
}
// Whether two rows of a segment see each other.
__device__ __forceinline__ bool sees(const Args& a, u32 query, u32 key) {
    return (query > key ? query - key : key - query) <= a.window;
}

// The dropout key of a query's row of probabilities.
__device__ __forceinline__ u64 row_key(const Args& a, u64 token_key) { return token_key * a.heads + blockIdx.y; }

// What dropout has decided in forward for the 16 queries and 16 keys around these, counted in the segment; backward
// finds it there, which costs it 32 bytes instead of ten rounds of Philox a lane. Byte 2 i + e of word r is for query
// 8 i + r and keys 8 e to 8 e + 7, and a set bit keeps.
__device__ __forceinline__ u32* kept_at(const Args& a, const Tile& tile, u32 query, u32 key) {
    u32 across = (tile.end - tile.start + 15) / 16;
    return a.kept + (blockIdx.y * a.squares + tile.squares + i64(query / 16) * across + key / 16) * 8;
}

#include "plain.cuh"
#include "tensor.cuh"
#include "tensor_forward.cuh"
#include "tensor_backward.cuh"

KERNELS(attention_forward, Args, 256, plain_forward)
KERNELS(attention_backward_queries, Args, 256, plain_backward_queries)
KERNELS(attention_backward_keys, Args, 256, plain_backward_keys)

#define TENSOR_KERNELS(K)                                                                        \
    KERNEL_NAMED(attention_forward_##K##_bf16, Args, 128, tensor_forward<bf16, K>)                   \
    KERNEL_NAMED(attention_forward_##K##_f16, Args, 128, tensor_forward<f16, K>)                     \
    KERNEL_NAMED(attention_backward_queries_##K##_bf16, Args, 128, tensor_backward_queries<bf16, K>) \
    KERNEL_NAMED(attention_backward_queries_##K##_f16, Args, 128, tensor_backward_queries<f16, K>)   \
    KERNEL_NAMED(attention_backward_keys_##K##_bf16, Args, 128, tensor_backward_keys<bf16, K>)       \
    KERNEL_NAMED(attention_backward_keys_##K##_f16, Args, 128, tensor_backward_keys<f16, K>)
TENSOR_KERNELS(32)
TENSOR_KERNELS(64)
TENSOR_KERNELS(80)
TENSOR_KERNELS(96)
TENSOR_KERNELS(128)
