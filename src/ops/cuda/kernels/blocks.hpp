// Simulation of thread blocks on the CPU: each thread is a fiber that runs until it reaches a barrier or an
// exchange with other lanes.
//
// When a thread has stopped there, any other thread that can run may be next: the lowest, the highest, or one
// drawn at random from a seed. Blocks run one after the other, in an order chosen the same way. Written for
// x86-64.
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

// Returns the `T` of this operating-system thread. It goes through a pointer, since each access to a
// `thread_local` with a constructor first checks whether the constructor has run.
template <typename T>
T& of_this_thread() {
    static thread_local T* found = nullptr;
    if (!found) {
        static thread_local T own;
        found = &own;
    }
    return *found;
}

// Order in which threads and blocks run, for launches on this operating-system thread.
enum class Order { FORWARDS, BACKWARDS, DRAWN };
void set_order(Order order, uint64_t seed);

// State of a thread: ready, done, or waiting for the lanes of its warp (in a shuffle or product, or in
// `__syncwarp()`) or for its block.
enum class State { READY, AT_SHUFFLE, AT_WARP, AT_BLOCK, DONE };

// Suspends the running thread until all others that are not done have reached the same barrier.
void wait(State state);

// Values that the lanes of a warp exchange.
using Slots = unsigned char[WARP][64];
// Returns the buffer for the next exchange of this warp. Two buffers alternate, so that one barrier per
// exchange is enough.
Slots& next_slots();

// What a lane holds of the tiles A [16, 16] and B [16, 8] (`mma.cuh`): of A two rows, of B one column, each in the
// columns or rows 2 (lane % 4), the next one, and these two plus 8.
struct Operands {
    float a[2][4], b[4];
};
// Adds the products of a lane's two rows of A and two columns of B to its values of C, in the order of the depth.
void add_products(float (&c)[4], const Slots& of_each_lane, unsigned lane);

// Starts an asynchronous copy to shared memory by the running thread. It is carried out only when the thread
// waits for it, so that a missing wait gives wrong results.
void start_copy(void* to, const void* from, size_t bytes, bool valid);
void finish_copies();

// Returns the shared memory of the block, 64-byte aligned; it is NaN until it is written.
void* shared_memory();

void run(const std::function<void()>& body, const unsigned* blocks, unsigned threads, unsigned shared_bytes);

[[noreturn]] void fail(const char* what);

}  // namespace host
