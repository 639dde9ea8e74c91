// Computes `Groups` (src/ops/scatter/mod.rs) for rows that the host does not have, without atomics and
// without a sorting algorithm.
//
// Kernel `order`: the place of a row in sorted order is the number of rows that come before it. One thread
// per row counts them over all rows; a block reads the rows once for all of its threads. That is count^2
// comparisons, much less work than the sums that the groups are used for. Kernel `group`: one block splits
// the sorted rows into targets and pieces.
#include "common.cuh"

// A number that no row has. It is the sort key of skipped rows, which therefore come last.
constexpr u32 NO_ROW = 0xffffffffu;
constexpr u32 ORDER_THREADS = 128;

struct OrderArgs {
    const u32* rows;  // [count]
    u32* order;       // [count]
    u32* ranks;       // [count], in sorted order: number of equal rows before this one; NO_ROW if skipped
    u32 count;
    u32 skip;  // NO_ROW to skip nothing
};

__device__ __forceinline__ u32 key_of(const OrderArgs& a, u32 i) {
    u32 row = i < a.count ? a.rows[i] : NO_ROW;
    return row == a.skip ? NO_ROW : row;
}

__device__ void order(const OrderArgs& a) {
    u32* keys = reinterpret_cast<u32*>(shared_memory());  // [ORDER_THREADS]
    u32 i = blockIdx.x * ORDER_THREADS + threadIdx.x;
    u32 own = key_of(a, i), place = 0, rank = 0;
    for (u32 first = 0; first < a.count; first += ORDER_THREADS) {
        keys[threadIdx.x] = key_of(a, first + threadIdx.x);
        __syncthreads();
        // Keys past the last row are NO_ROW and have large indices, so they never count as being before a
        // row.
#pragma unroll 8
        for (u32 k = 0; k < ORDER_THREADS; k += 4) {
            Vec<u32, 4> others = load_whole<u32, 4>(keys + k);
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                bool same = others.v[j] == own && first + k + j < i;
                rank += same;
                place += same || others.v[j] < own;
            }
        }
        __syncthreads();
    }
    if (i >= a.count) return;
    a.order[place] = i;
    a.ranks[place] = own == NO_ROW ? NO_ROW : rank;
}
KERNEL(scatter_order, OrderArgs, 128, order)

struct GroupArgs {
    const u32* rows;     // [count]
    const u32* order;    // [count]
    const u32* ranks;    // [count]
    u32* piece_starts;   // [count + 1]
    u32* targets;        // [count]
    u32* target_pieces;  // [count + 1]
    u32 count;
    u32 piece_rows;
};

// Returns the sum of `value` over the threads of the block before this one, and sets `all` to the sum over
// all threads. `room` has space for a value of each warp and may be reused after the call.
__device__ __forceinline__ u32 sum_before(u32 value, u32* room, u32& all) {
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, sum = value;
#pragma unroll
    for (u32 by = 1; by < WARP; by *= 2) {
        u32 below = __shfl_sync(ALL_LANES, sum, int((lane - by) % WARP));
        if (lane >= by) sum += below;
    }
    if (lane == WARP - 1) room[warp] = sum;
    __syncthreads();
    u32 before = sum - value;
    all = 0;
    for (u32 w = 0; w < blockDim.x / WARP; w++) {
        if (w < warp) before += room[w];
        all += room[w];
    }
    __syncthreads();
    return before;
}

// Each thread processes an equal number of consecutive sorted rows.
__device__ void group(const GroupArgs& a) {
    u32* room = reinterpret_cast<u32*>(shared_memory());
    u32 share = (a.count + blockDim.x - 1) / blockDim.x;
    u32 start = min(a.count, threadIdx.x * share), end = min(a.count, start + share);
    u32 rows = 0, pieces = 0, targets = 0;
    for (u32 at = start; at < end; at++) {
        u32 rank = a.ranks[at];
        if (rank == NO_ROW) break;
        rows++;
        pieces += rank % a.piece_rows == 0;
        targets += rank == 0;
    }
    u32 all_rows, all_pieces, all_targets;
    sum_before(rows, room, all_rows);
    u32 piece = sum_before(pieces, room, all_pieces), target = sum_before(targets, room, all_targets);
    for (u32 at = start; at < start + rows; at++) {
        u32 rank = a.ranks[at];
        if (rank == 0) {
            a.targets[target] = a.rows[a.order[at]];
            a.target_pieces[target++] = piece;
        }
        if (rank % a.piece_rows == 0) a.piece_starts[piece++] = at;
    }
    // Write the end of each array, and repeat it up to the array's length, so that the padding is empty.
    for (u32 i = threadIdx.x; i <= a.count; i += blockDim.x) {
        if (i >= all_pieces) a.piece_starts[i] = all_rows;
        if (i >= all_targets) a.target_pieces[i] = all_pieces;
        if (i >= all_targets && i < a.count) a.targets[i] = NO_ROW;
    }
}
KERNEL(scatter_group, GroupArgs, 512, group)
