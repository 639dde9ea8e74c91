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
    u32 window;  // largest distance between rows that see each other; EVERYTHING without a window
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

// Range of rows of the other side, relative to the segment, that some row of the tile sees: whole tiles,
// except for the last.
struct Span {
    u32 first, end;
};
__device__ __forceinline__ Span span_of(const Args& a, const Tile& tile) {
    u32 rows = tile.end - tile.start, own = tile.first - tile.start, after = rows - own;
    u32 first = own > a.window ? (own - a.window) / ROWS * ROWS : 0;
    return {first, after > ROWS && after - ROWS > a.window ? own + ROWS + a.window : rows};
}
// Returns true if two rows of a segment see each other.
__device__ __forceinline__ bool sees(const Args& a, u32 query, u32 key) {
    return (query > key ? query - key : key - query) <= a.window;
}

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
