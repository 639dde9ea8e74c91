// Blocks of threads on the CPU: each thread is a fiber that runs until it meets a barrier or another lane.
//
// Whenever a thread has come that far, any other that can go on may: the lowest, the highest, or one drawn
// from a seed. Blocks run one after the other, drawn likewise. Written for x86-64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#if !defined(__x86_64__)
#error "kernels on the CPU are written for x86-64"
#endif

struct Index3 {
    unsigned x, y, z;
};

inline thread_local Index3 threadIdx, blockIdx, blockDim, gridDim;

namespace host {

constexpr unsigned WARP = 32;

// The one `T` of this thread of the system. By a pointer, since each look at a `thread_local` with a constructor
// would ask first whether that has run.
template <typename T>
T& of_this_thread() {
    static thread_local T* found = nullptr;
    if (!found) {
        static thread_local T own;
        found = &own;
    }
    return *found;
}

// In which order threads and blocks take their turns, on this thread of the system.
enum class Order { FORWARDS, BACKWARDS, DRAWN };
void set_order(Order order, uint64_t seed);

// Where a thread waits: for the lanes of its warp, in a shuffle or product or in `__syncwarp()`, or for its
// block.
enum class State { READY, AT_SHUFFLE, AT_WARP, AT_BLOCK, DONE };

// Waits until all others that are not done have come to the same place.
void wait(State state);

// What the lanes of a warp tell each other.
using Slots = unsigned char[WARP][64];
// The room for the next exchange of this warp: two take turns, so that one barrier an exchange is enough.
Slots& next_slots();

// A copy to shared memory that the running thread starts. It is done no earlier than it is waited for, so
// that a missing wait is seen.
void start_copy(void* to, const void* from, size_t bytes, bool valid);
void finish_copies();

// Shared memory of the block, 64-byte aligned; NaN until it is written.
void* shared_memory();

void run(const std::function<void()>& body, const unsigned* blocks, unsigned threads, unsigned shared_bytes);

[[noreturn]] void fail(const char* what);

}  // namespace host
