// A race detector for kernels on the CPU: two threads touch one address, one of them writes, and no barrier
// stands between them. It looks at the alignment of accesses, too.
//
// Kernels are compiled with `-fsanitize=thread`, which puts a call before each access to memory; the calls
// come here, not to that sanitizer's own library, which knows threads of the system and not ours. Threads of
// a block are ordered by `__syncthreads()`, lanes of a warp also by `__syncwarp()`; shuffles and products of
// a warp order no memory. Blocks are ordered by nothing but the end of the launch. So a race is found
// whatever the order that threads happened to take, if only both accesses were made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace host {

// Where the thread stands that is running now.
struct Now {
    bool armed;             // this launch is watched
    bool watching;          // a thread of it is running
    bool found;             // a race in this launch
    uintptr_t shared;       // the shared memory of the block
    size_t shared_bytes;
    uintptr_t stack;        // of the thread: its own
    size_t stack_bytes;
    uintptr_t exchange;     // what stands for registers of other lanes
    size_t exchange_bytes;
    unsigned launch, block_run;  // counted from 1 over all launches and all blocks
    unsigned block;         // its index in the grid
    unsigned thread;
    unsigned block_epoch;   // barriers of the block so far
    unsigned warp_epoch;    // barriers of the warp so far
};
inline thread_local Now now = {};

// An access of the running thread in a launch that is watched.
void look_at(const void* at, size_t bytes, bool writes);

// An access of the running thread; the compiler's calls end here. Most launches are not watched.
inline void touch(const void* at, size_t bytes, bool writes) {
    if (now.watching) look_at(at, bytes, writes);
}

// An access whose address is not a multiple of its size, which x86 puts up with and a GPU does not: ends a launch that is
// watched as a race does, and all else at once.
void misaligned(const void* at, size_t bytes);

inline void aligned(const void* at, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(at) % bytes) misaligned(at, bytes);
}

// Begins the watch over a launch of `kernel`, whose arguments name the addresses that messages speak of.
void watch(const char* kernel, const void* args, size_t args_bytes, size_t shared_bytes);

// Whether the launches of this thread of the system are watched: a race is found in any order, so that one is
// enough.
void set_watched(bool watched);

// Ends it: what was found first, in words, or nothing.
std::string end_of_watch();

}  // namespace host
