// Kernels with deliberate faults, each with a correct version: the control of the race detector in
// `races.hpp` and of the scheduling order.
#pragma once

struct PlantedArgs {
    const u32* in;
    u32* out;
};

// A block reverses 256 values by way of shared memory, with a barrier between the accesses or without.
template <bool IS_ORDERED>
__device__ void planted_reverse(const PlantedArgs& a) {
    u32* room = reinterpret_cast<u32*>(shared_memory());
    room[threadIdx.x] = a.in[threadIdx.x];
    if (IS_ORDERED) __syncthreads();
    a.out[threadIdx.x] = room[blockDim.x - 1 - threadIdx.x];
}
KERNEL(planted_reverse, PlantedArgs, 256, planted_reverse<true>)
KERNEL(planted_reverse_race, PlantedArgs, 256, planted_reverse<false>)

// Each warp reverses its 32 values. Both versions have a shuffle between the accesses, which makes lanes wait
// but does not order memory.
template <bool IS_ORDERED>
__device__ void planted_warp(const PlantedArgs& a) {
    u32* room = reinterpret_cast<u32*>(shared_memory());
    u32 first = threadIdx.x / WARP * WARP, lane = threadIdx.x % WARP;
    room[threadIdx.x] = a.in[threadIdx.x];
    if (IS_ORDERED) __syncwarp();
    u32 last = first + __shfl_sync(ALL_LANES, WARP - 1, 0);
    a.out[threadIdx.x] = room[last - lane];
}
KERNEL(planted_warp, PlantedArgs, 256, planted_warp<true>)
KERNEL(planted_warp_race, PlantedArgs, 256, planted_warp<false>)

// Two stages alternate as in attention: a copy that is started before the barrier conflicts with threads that
// still read.
template <bool IS_ORDERED>
__device__ void planted_stages(const PlantedArgs& a) {
    u32* room = reinterpret_cast<u32*>(shared_memory());
    u32 sum = 0;
    copy_async<4>(&room[threadIdx.x], &a.in[threadIdx.x], true);
    for (u32 stage = 0; stage < 4; stage++) {
        u32* next = &room[(stage + 1) % 2 * blockDim.x + threadIdx.x];
        wait_for_copies();
        if (!IS_ORDERED && stage < 3) copy_async<4>(next, &a.in[threadIdx.x], true);
        __syncthreads();
        if (IS_ORDERED && stage < 3) copy_async<4>(next, &a.in[threadIdx.x], true);
        sum += room[stage % 2 * blockDim.x + (threadIdx.x + WARP) % blockDim.x];
    }
    a.out[threadIdx.x] = sum;
}
KERNEL(planted_stages, PlantedArgs, 256, planted_stages<true>)
KERNEL(planted_stages_race, PlantedArgs, 256, planted_stages<false>)

// Each thread copies 16 bytes, from the given address or from one value after it.
template <u32 BEHIND>
__device__ void planted_wide(const PlantedArgs& a) {
    if (threadIdx.x < 8) store_whole<u32, 4>(a.out + 4 * threadIdx.x, load_whole<u32, 4>(a.in + 4 * threadIdx.x + BEHIND));
}
KERNEL(planted_wide, PlantedArgs, 256, planted_wide<0>)
KERNEL(planted_wide_misaligned, PlantedArgs, 256, planted_wide<1>)

// Each block writes its own values; in the faulty version also a value of the next block.
template <bool IS_ORDERED>
__device__ void planted_blocks(const PlantedArgs& a) {
    u32 own = blockIdx.x * blockDim.x + threadIdx.x, next = (own + blockDim.x) % (gridDim.x * blockDim.x);
    a.out[own] = a.in[own];
    if (!IS_ORDERED && threadIdx.x == 0) a.out[next] = a.in[next];
}
KERNEL(planted_blocks, PlantedArgs, 256, planted_blocks<true>)
KERNEL(planted_blocks_race, PlantedArgs, 256, planted_blocks<false>)

// Writes which of three warps arrives second: the same one forwards and backwards.
__device__ void planted_second(const PlantedArgs& a) {
    if (threadIdx.x % WARP == 0 && atomicAdd(a.out, 1u) == 1) a.out[1] = threadIdx.x / WARP;
}
KERNEL(planted_second, PlantedArgs, 96, planted_second)
