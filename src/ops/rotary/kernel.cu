// Rotary position embedding; see mod.rs for the formulas.
//
// A block processes HEADS heads of a tile of rows of one segment (src/ops/attention/tiles.rs). A thread
// rotates N pairs of a row, the same pairs in each head, so it reads their cosines and sines once.
#include "common.cuh"

constexpr u32 TILE_ROWS = 64;  // as in tiles.rs
constexpr u32 HEADS = 4;       // as in cuda.rs

struct Args {
    void* x;             // [T, heads * head_size], rotated in place
    const float* table;  // [places, head_size]: cosines, then sines
    const u32* tiles;    // per tile: start and end of the segment, first row, one unused
    u32 heads;
    u32 head_size;
    float sign;  // factor of the sines: 1 forward, -1 backward
    u32 wide;
};

template <typename T, int N>
__device__ __forceinline__ void rotate_tile(const Args& a) {
    const u32* tile = a.tiles + i64(blockIdx.x) * 4;
    u32 start = tile[0], first = tile[2], rows = min(TILE_ROWS, tile[1] - first);
    u32 half = a.head_size / 2, chunks = half / N;
    u32 head = blockIdx.y * HEADS, heads = min(HEADS, a.heads - head);
    for (u32 item = threadIdx.x; item < rows * chunks; item += blockDim.x) {
        u32 row = first + item / chunks, col = item % chunks * N;
        T* x = static_cast<T*>(a.x) + (i64(row) * a.heads + head) * a.head_size + col;
        const float* angles = a.table + i64(row - start) * a.head_size + col;
        Vec<T, N> left[HEADS], right[HEADS];
        float cosines[N], sines[N];
        // All loads come before the first store.
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
            if (h < heads) {
                left[h] = load_whole<T, N>(x + i64(h) * a.head_size);
                right[h] = load_whole<T, N>(x + i64(h) * a.head_size + half);
            }
        }
        load_vector<N>(cosines, angles);
        load_vector<N>(sines, angles + half);
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
            if (h < heads) {
                float turned_left[N], turned_right[N];
#pragma unroll
                for (int i = 0; i < N; i++) {
                    float l = widen(left[h].v[i]), r = widen(right[h].v[i]), sine = a.sign * sines[i];
                    turned_left[i] = fmaf(l, cosines[i], -(r * sine));
                    turned_right[i] = fmaf(r, cosines[i], l * sine);
                }
                store<N>(x + i64(h) * a.head_size, turned_left);
                store<N>(x + i64(h) * a.head_size + half, turned_right);
            }
        }
    }
}

template <typename T>
__device__ void rotate(const Args& a) {
    if (a.wide) {
        rotate_tile<T, WIDE<T>>(a);
    } else {
        rotate_tile<T, 1>(a);
    }
}
KERNELS(rotary_rotate, Args, 256, rotate)
