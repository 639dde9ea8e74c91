// CUDA's keywords and functions as C++, for tests that run kernels on the CPU.
//
// Each thread of a block is a fiber (`blocks.hpp`), and every memory access is checked (`races.hpp`). This
// shows whether a kernel computes the right result in any order of its threads, and whether its barriers rule
// out every other result; it does not model caches, banks or time. Shared memory begins as NaN, so that a
// value that was never written shows up in the result.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "blocks.hpp"
#include "races.hpp"

#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

namespace host {

// Exchanges a value between all lanes of the warp; the returned values stay valid until the next exchange but
// one.
template <typename T>
const Slots& share(const T& value) {
    static_assert(sizeof(T) <= sizeof(Slots) / WARP);
    Slots& slots = next_slots();
    std::memcpy(slots[threadIdx.x % WARP], &value, sizeof(T));
    wait(State::AT_SHUFFLE);
    return slots;
}

template <typename T>
T value_of(const Slots& slots, int lane) {
    T value;
    std::memcpy(&value, slots[lane & int(WARP - 1)], sizeof(T));
    return value;
}

using Run = void (*)(const void* args, const unsigned* blocks, unsigned threads, unsigned shared_bytes);

// Registers a kernel under its name.
struct Registered {
    Registered(const char* name, Run run, size_t args_bytes);
};

}  // namespace host

// ---- CUDA's own functions ----

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
    const auto& slots = host::share(value);
    return host::value_of<T>(slots, lane + by < int(host::WARP) ? lane + by : lane);
}
inline unsigned __ballot_sync(unsigned, bool value) {
    const auto& slots = host::share(value);
    unsigned bits = 0;
    for (int lane = 0; lane < int(host::WARP); lane++) bits |= unsigned(host::value_of<bool>(slots, lane)) << lane;
    return bits;
}

using std::max;
using std::min;

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
// Not instrumented for race detection, since atomic accesses do not race with each other.
template <typename T>
__attribute__((noinline, no_sanitize_thread)) T atomicAdd(T* at, T value) {
    T before = *at;
    *at += value;
    return before;
}
template <typename T>
T __ldg(const T* at) {
    return *at;
}
