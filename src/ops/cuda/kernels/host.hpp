// Kernels on the CPU, for tests: each thread of a block is a fiber that runs until it meets a barrier.
//
// It shows whether a kernel computes what it should, whatever the order of its threads; it knows nothing of
// caches, banks or time. Blocks run one after the other on the calling thread. Shared memory begins as NaN,
// so that a value that was never written is seen in the result. Written for x86-64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#if !defined(__x86_64__)
#error "kernels on the CPU are written for x86-64"
#endif

#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct Index3 {
    unsigned x, y, z;
};

inline thread_local Index3 threadIdx, blockIdx, blockDim, gridDim;

namespace host {

constexpr size_t STACK_BYTES = 256 << 10;
constexpr int WARP = 32;

// Saves the registers that a call must keep, and goes on with another stack.
extern "C" void mlmtrain_switch_stack(void** save, void* load);
asm(R"(
.text
.globl mlmtrain_switch_stack
.type mlmtrain_switch_stack, @function
mlmtrain_switch_stack:
  push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp
  ret
)");

enum class State { READY, AT_WARP, AT_BLOCK, DONE };

struct Fiber {
    void* stack_pointer = nullptr;
    State state = State::READY;
    // Which of the two rooms of its warp the next collective uses: one barrier a collective is then enough.
    unsigned parity = 0;
};

// What the lanes of a warp tell each other.
struct Exchange {
    alignas(16) unsigned char slots[2][WARP][64];
};

struct Block {
    std::vector<Fiber> fibers;
    std::vector<Exchange> exchanges;
    std::vector<unsigned char> shared;
    std::vector<std::vector<unsigned char>> stacks;
    const std::function<void()>* body = nullptr;
    void* scheduler = nullptr;
    unsigned current = 0;
};

inline thread_local Block block;
inline thread_local bool backwards = false;

[[noreturn]] inline void fail(const char* what) {
    std::fprintf(stderr, "kernel on the CPU: %s\n", what);
    std::abort();
}

inline void wait(State state) {
    Fiber& fiber = block.fibers[block.current];
    fiber.state = state;
    mlmtrain_switch_stack(&fiber.stack_pointer, block.scheduler);
}

inline void enter() {
    (*block.body)();
    wait(State::DONE);
}

inline void prepare(Fiber& fiber, std::vector<unsigned char>& stack) {
    stack.resize(STACK_BYTES);
    auto top = (reinterpret_cast<uintptr_t>(stack.data()) + STACK_BYTES) & ~uintptr_t(63);
    auto* words = reinterpret_cast<uintptr_t*>(top);
    // Six registers, then the address that the first switch returns to, with the alignment that a call would
    // leave.
    words[-2] = reinterpret_cast<uintptr_t>(&enter);
    fiber = Fiber();
    fiber.stack_pointer = words - 8;
}

// Lets all threads of the first..last that wait for `state` go on, if none is still on its way there.
inline bool release(unsigned first, unsigned last, State state) {
    bool any = false;
    for (unsigned i = first; i < last; i++) {
        State at = block.fibers[i].state;
        if (at != state && at != State::DONE) return false;
        any |= at == state;
    }
    for (unsigned i = first; any && i < last; i++) {
        if (block.fibers[i].state == state) block.fibers[i].state = State::READY;
    }
    return any;
}

inline void run_block(unsigned threads) {
    block.fibers.resize(threads);
    block.stacks.resize(std::max<size_t>(block.stacks.size(), threads));
    block.exchanges.resize((threads + WARP - 1) / WARP);
    std::fill(block.shared.begin(), block.shared.end(), 0xff);
    for (unsigned i = 0; i < threads; i++) prepare(block.fibers[i], block.stacks[i]);
    for (;;) {
        bool ran = false, all_done = true;
        for (unsigned n = 0; n < threads; n++) {
            unsigned i = backwards ? threads - 1 - n : n;
            Fiber& fiber = block.fibers[i];
            if (fiber.state == State::READY) {
                block.current = i;
                threadIdx = {i, 0, 0};
                mlmtrain_switch_stack(&block.scheduler, fiber.stack_pointer);
                ran = true;
            }
            all_done &= fiber.state == State::DONE;
        }
        if (all_done) return;
        bool released = release(0, threads, State::AT_BLOCK);
        for (unsigned w = 0; w * WARP < threads; w++) {
            released |= release(w * WARP, std::min(threads, (w + 1) * WARP), State::AT_WARP);
        }
        if (!ran && !released) fail("threads wait for each other at different barriers");
    }
}

inline void run(const std::function<void()>& body, const unsigned* blocks, unsigned threads, unsigned shared_bytes) {
    if (threads % WARP) fail("threads of a block must be whole warps");
    block.body = &body;
    block.shared.assign(shared_bytes + 64, 0);
    blockDim = {threads, 1, 1};
    gridDim = {blocks[0], blocks[1], blocks[2]};
    for (unsigned z = 0; z < blocks[2]; z++) {
        for (unsigned y = 0; y < blocks[1]; y++) {
            for (unsigned x = 0; x < blocks[0]; x++) {
                blockIdx = {x, y, z};
                run_block(threads);
            }
        }
    }
}

inline void* shared_memory() {
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(block.shared.data()) + 63) & ~uintptr_t(63));
}

// Every lane of the warp gives a value; gives the values of all lanes, until the next collective but one.
template <typename T>
const unsigned char (*share(const T& value))[64] {
    static_assert(sizeof(T) <= 64);
    Fiber& fiber = block.fibers[block.current];
    auto& slots = block.exchanges[block.current / WARP].slots[fiber.parity];
    fiber.parity ^= 1;
    std::memcpy(slots[block.current % WARP], &value, sizeof(T));
    wait(State::AT_WARP);
    return slots;
}

template <typename T>
T value_of(const unsigned char (*slots)[64], int lane) {
    T value;
    std::memcpy(&value, slots[lane & (WARP - 1)], sizeof(T));
    return value;
}

using Run = void (*)(const void* args, const unsigned* blocks, unsigned threads, unsigned shared_bytes);

struct Kernel {
    Run run;
    size_t args_bytes;
};

inline std::map<std::string, Kernel>& kernels() {
    static std::map<std::string, Kernel> all;
    return all;
}

struct Registered {
    Registered(const char* name, Run run, size_t args_bytes) { kernels()[name] = {run, args_bytes}; }
};

}  // namespace host

// ---- what CUDA calls by these names ----

inline void __syncthreads() { host::wait(host::State::AT_BLOCK); }
inline void __syncwarp(unsigned = ~0u) { host::wait(host::State::AT_WARP); }

template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
    return host::value_of<T>(host::share(value), lane);
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
    return host::value_of<T>(host::share(value), int(threadIdx.x % host::WARP) ^ mask);
}
template <typename T>
T __shfl_down_sync(unsigned, T value, int by) {
    int lane = int(threadIdx.x % host::WARP);
    auto slots = host::share(value);
    return host::value_of<T>(slots, lane + by < host::WARP ? lane + by : lane);
}
inline unsigned __ballot_sync(unsigned, bool value) {
    auto slots = host::share(value);
    unsigned bits = 0;
    for (int lane = 0; lane < host::WARP; lane++) bits |= unsigned(host::value_of<bool>(slots, lane)) << lane;
    return bits;
}

using std::max;
using std::min;

inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((uint64_t(a) * b) >> 32); }
inline float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __uint_as_float(unsigned x) {
    float value;
    std::memcpy(&value, &x, 4);
    return value;
}
inline unsigned __float_as_uint(float x) {
    unsigned value;
    std::memcpy(&value, &x, 4);
    return value;
}
template <typename T>
T atomicAdd(T* at, T value) {
    T before = *at;
    *at += value;
    return before;
}
template <typename T>
T __ldg(const T* at) {
    return *at;
}
