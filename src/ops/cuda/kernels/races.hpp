// Race detector for kernels on the CPU: a race is two accesses to the same address by two threads, at least
// one of them a write, without a barrier between them. It also checks the alignment of accesses.
//
// Kernels are compiled with `-fsanitize=thread`, which inserts a call before each memory access. The calls
// are implemented here instead of in that sanitizer's own library, which knows operating-system threads but
// not the simulated ones. Threads of a block are ordered by `__syncthreads()`, lanes of a warp also by
// `__syncwarp()`; shuffles and products of a warp do not order memory. Blocks are ordered only by the end of
// the launch. A race is therefore found in whatever order the threads happened to run, provided both accesses
// were made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace host {

// State of the thread that is running now.
struct Now {
    bool armed;             // this launch is watched
    bool watching;          // a thread of it is running
    bool found;             // a race in this launch
    uintptr_t shared;       // the shared memory of the block
    size_t shared_bytes;
    uintptr_t stack;        // private stack of the thread
    size_t stack_bytes;
    uintptr_t exchange;     // buffers that simulate registers of other lanes
    size_t exchange_bytes;
    unsigned launch, block_run;  // counted from 1 over all launches and all blocks
    unsigned block;         // its index in the grid
    unsigned thread;
    unsigned block_epoch;   // barriers of the block so far
    unsigned warp_epoch;    // barriers of the warp so far
};
inline thread_local Now now = {};

// Records an access of the running thread in a watched launch.
void look_at(const void* at, size_t bytes, bool writes);

// Handles an access of the running thread; all calls of the instrumentation end here. Most launches are not
// watched.
inline void touch(const void* at, size_t bytes, bool writes) {
    if (now.watching) look_at(at, bytes, writes);
}

// Handles an access whose address is not a multiple of its size, which x86 tolerates and a GPU does not. In a
// watched launch it is reported like a race; otherwise the program aborts.
void misaligned(const void* at, size_t bytes);

inline void aligned(const void* at, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(at) % bytes) misaligned(at, bytes);
}

// Begins to watch a launch of `kernel`; messages describe addresses relative to the pointers among its
// arguments.
void watch(const char* kernel, const void* args, size_t args_bytes, size_t shared_bytes);

// Sets whether launches of this operating-system thread are watched. A race is found in any order, so one
// watched launch is enough.
void set_watched(bool watched);

// Ends the watch; returns a description of the first race, or an empty string.
std::string end_of_watch();

}  // namespace host
