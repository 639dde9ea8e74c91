// Arguments of all kernels of attention, and the definitions that describe a tile of a segment.
//
// Each kernel.cu includes this file, and the headers that depend on it, once (and, as C++, in its own
// namespace), so they have no `#pragma once`. Their templates take the arguments of the op as type `A`:
// `Args`, or a struct that extends it.

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
    const u32* tiles;    // start and end of the segment, first row of the tile, squares of earlier segments
    const u64* token_keys;
    u32* kept;           // [H, squares, 8]: decisions of dropout, see `kept_at`
    i64 squares;         // 16 queries by 16 keys each, of all segments
    i64 hidden;
    Dropout dropout;
    u32 heads;
    u32 head_size;
    float scale;
    u32 before;  // largest distance to a key before a query that it sees; EVERYTHING for all of its segment
    u32 after;   // the same to a key after it; 0 in causal attention
};

constexpr u32 EVERYTHING = 0xffffffff;

constexpr int ROWS = 64;  // of a tile: `TILE_ROWS` in tiles.rs

// Tile as rows of the batch: start and end of its segment, and its first row; and the number of squares in
// the segments before.
struct Tile {
    u32 start, end, first, squares;
};
__device__ __forceinline__ Tile tile_of(const Args& a) {
    const u32* bounds = a.tiles + 4 * i64(blockIdx.x);
    return {bounds[0], bounds[1], bounds[2], bounds[3]};
}

// Range of rows relative to the segment, from the first row of a tile on.
struct Span {
    u32 first, end;
};
// Returns the rows from `before` rows before a tile to `after` rows after it, inside the segment.
__device__ __forceinline__ Span span_around(const Tile& tile, u32 before, u32 after) {
    u32 rows = tile.end - tile.start, own = tile.first - tile.start, following = rows - own;
    u32 first = own > before ? (own - before) / ROWS * ROWS : 0;
    return {first, following > ROWS && following - ROWS > after ? own + ROWS + after : rows};
}
// Returns the keys that some query of the tile sees.
__device__ __forceinline__ Span keys_seen(const Args& a, const Tile& tile) { return span_around(tile, a.before, a.after); }
// Returns the queries that see some key of the tile.
__device__ __forceinline__ Span queries_seeing(const Args& a, const Tile& tile) {
    return span_around(tile, a.after, a.before);
}
// Returns true if a query sees a key of its segment.
__device__ __forceinline__ bool sees(const Args& a, u32 query, u32 key) {
    return query > key ? query - key <= a.before : key - query <= a.after;
}
// Returns true if each query sees all keys of its segment.
__device__ __forceinline__ bool sees_all(const Args& a) { return (a.before & a.after) == EVERYTHING; }

// Returns the dropout key of a query's row of probabilities.
__device__ __forceinline__ u64 row_key(const Args& a, u64 token_key) { return token_key * a.heads + blockIdx.y; }

// Returns the address of forward's dropout decisions for the square of 16 queries and 16 keys that contains
// these two, which are relative to the segment. Backward reads them there, 32 bytes per square, instead of
// drawing again, ten rounds of Philox per lane. Byte 2 i + e of word r is for query 8 i + r and keys 8 e to 8
// e + 7, and a set bit means that the probability is kept.
__device__ __forceinline__ u32* kept_at(const Args& a, const Tile& tile, u32 query, u32 key) {
    u32 across = (tile.end - tile.start + 15) / 16;
    return a.kept + (blockIdx.y * a.squares + tile.squares + i64(query / 16) * across + key / 16) * 8;
}

// Contribution of token positions to scores, and its gradients: nothing, unless an op with arguments of its
// own specialises these (`disentangled_attention/positions.cuh`). A block of `plain.cuh` has a
// `PlainPositions`, a warp of the tensor-core kernels a `TensorPositions`.
template <typename T, typename A>
struct PlainPositions {
    const A& a;
    const Tile& tile;
    static constexpr bool ARE_THERE = false;
};
template <typename T, typename A>
struct TensorPositions {
    static constexpr bool ARE_THERE = false;
    // The third argument is shared memory after everything else that the kernel stores there, the last the
    // index in its segment of the warp's first row.
    __device__ __forceinline__ TensorPositions(const A&, const Tile&, void*, u32) {}
};
