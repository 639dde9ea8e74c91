// What all kernels of attention are given, and what they know of a tile of a segment.
//
// Each kernel.cu that includes it, and the headers behind it, does so once (and, as C++, into its own namespace): there
// is no `#pragma once` in them. Their templates take the arguments of the op, `A`: `Args`, or what an op adds to them.

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

// What positions of tokens add to scores, and what gradients of scores come to for them: nothing, unless an op with
// arguments of its own says so (`disentangled_attention/positions.cuh`). A block of `plain.cuh` has the first, a warp of
// the kernels on tensor cores the second.
template <typename T, typename A>
struct PlainPositions {
    const A& a;
    const Tile& tile;
    static constexpr bool ARE_THERE = false;
};
template <typename T, typename A>
struct TensorPositions {
    static constexpr bool ARE_THERE = false;
    // The third is shared memory behind all else that the kernel has there, the last the index in its segment of the
    // warp's first row.
    __device__ __forceinline__ TensorPositions(const A&, const Tile&, void*, u32) {}
};
