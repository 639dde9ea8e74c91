// Definitions that all kernels share: number types, wide loads, sums over warps and blocks, random numbers,
// and the macros that define kernels. Compiled by nvcc for GPUs, and as C++ for tests on the CPU
// (`host.hpp`).
//
// A kernel takes one struct of arguments with the same bytes as its `#[repr(C)]` counterpart in `cuda.rs`:
// fields of 8 bytes come first. Indices into tensors are 64 bits. Sums are f32 or wider, and their order
// depends on shapes alone: no float atomics.
#pragma once

#ifdef KERNELS_ON_HOST
#include "host.hpp"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#endif

using u32 = uint32_t;
using u64 = uint64_t;
using i64 = int64_t;

constexpr u32 WARP = 32;
constexpr u32 ALL_LANES = 0xffffffffu;

// ---- number types ----

#ifdef KERNELS_ON_HOST
struct bf16 {
    uint16_t bits;
};
struct f16 {
    uint16_t bits;
};
inline float widen(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }
inline float widen(f16 x) {
    _Float16 value;
    std::memcpy(&value, &x, 2);
    return float(value);
}
template <typename T>
T narrow(float value);
template <>
inline bf16 narrow<bf16>(float value) {
    u32 bits = __float_as_uint(value);
    return {uint16_t(value != value ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
template <>
inline f16 narrow<f16>(float value) {
    _Float16 half = _Float16(value);
    f16 out;
    std::memcpy(&out, &half, 2);
    return out;
}
#else
using bf16 = __nv_bfloat16;
using f16 = __half;
__device__ __forceinline__ float widen(bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float widen(f16 x) { return __half2float(x); }
template <typename T>
__device__ __forceinline__ T narrow(float value);
template <>
__device__ __forceinline__ bf16 narrow<bf16>(float value) {
    return __float2bfloat16_rn(value);
}
template <>
__device__ __forceinline__ f16 narrow<f16>(float value) {
    return __float2half_rn(value);
}
#endif
__device__ __forceinline__ float widen(float x) { return x; }
template <>
__device__ __forceinline__ float narrow<float>(float value) {
    return value;
}

// ---- wide loads and stores ----

// N contiguous values; 16 bytes if N is WIDE<T>.
template <typename T, int N>
struct alignas(sizeof(T) * N) Vec {
    T v[N];
};
template <typename T>
constexpr int WIDE = 16 / sizeof(T);

// Loads N values in one access of 16 or 8 bytes. nvcc splits a struct into its elements, and does not merge
// them again if a branch is between the parts; hence the explicit word types.
template <typename T, int N>
__device__ __forceinline__ Vec<T, N> load_whole(const T* from) {
#ifndef KERNELS_ON_HOST
    Vec<T, N> out;
    if constexpr (sizeof(out) == 16) {
        uint4 words = *reinterpret_cast<const uint4*>(from);
        memcpy(&out, &words, 16);
        return out;
    } else if constexpr (sizeof(out) == 8) {
        uint2 words = *reinterpret_cast<const uint2*>(from);
        memcpy(&out, &words, 8);
        return out;
    }
#else
    host::aligned(from, sizeof(Vec<T, N>) < 16 ? sizeof(Vec<T, N>) : 16);
#endif
    return *reinterpret_cast<const Vec<T, N>*>(from);
}
template <typename T, int N>
__device__ __forceinline__ void store_whole(T* to, const Vec<T, N>& values) {
#ifndef KERNELS_ON_HOST
    if constexpr (sizeof(values) == 16) {
        uint4 words;
        memcpy(&words, &values, 16);
        asm volatile("st.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w) : "memory");
        return;
    } else if constexpr (sizeof(values) == 8) {
        uint2 words;
        memcpy(&words, &values, 8);
        asm volatile("st.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(words.x), "r"(words.y) : "memory");
        return;
    }
#else
    host::aligned(to, sizeof(values) < 16 ? sizeof(values) : 16);
#endif
    *reinterpret_cast<Vec<T, N>*>(to) = values;
}

// Loads N values of any type and widens them to f32.
template <int N, typename T>
__device__ __forceinline__ void load(float (&out)[N], const T* from) {
    Vec<T, N> values = load_whole<T, N>(from);
#pragma unroll
    for (int i = 0; i < N; i++) out[i] = widen(values.v[i]);
}
template <int N, typename T>
__device__ __forceinline__ void store(T* to, const float (&values)[N]) {
    Vec<T, N> out;
#pragma unroll
    for (int i = 0; i < N; i++) out.v[i] = narrow<T>(values[i]);
    store_whole<T, N>(to, out);
}
// Loads N f32 values, in pieces of 16 bytes: for f32 tables used together with half-precision rows, where N
// values are more than 16 bytes.
template <int N>
__device__ __forceinline__ void load_f32(float (&out)[N], const float* from) {
    static_assert(N % 4 == 0);
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        Vec<float, 4> four = load_whole<float, 4>(from + i);
#pragma unroll
        for (int j = 0; j < 4; j++) out[i + j] = four.v[j];
    }
}
template <int N>
__device__ __forceinline__ void store_f32(float* to, const float (&values)[N]) {
    static_assert(N % 4 == 0);
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        store_whole<float, 4>(to + i, {{values[i], values[i + 1], values[i + 2], values[i + 3]}});
    }
}
// The same for any N: a single value needs no alignment beyond its own.
template <int N>
__device__ __forceinline__ void load_vector(float (&out)[N], const float* from) {
    if constexpr (N % 4 == 0) {
        load_f32<N>(out, from);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) out[i] = from[i];
    }
}
template <int N>
__device__ __forceinline__ void store_vector(float* to, const float (&values)[N]) {
    if constexpr (N % 4 == 0) {
        store_f32<N>(to, values);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = values[i];
    }
}

// ---- sums and maxima ----

template <typename S>
__device__ __forceinline__ S warp_sum(S value) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(ALL_LANES, value, mask);
    return value;
}
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, mask));
    return value;
}
// Returns the sum over all threads of a block, the same in each thread; `room` holds a value for each warp
// and may be reused afterwards.
template <typename S>
__device__ __forceinline__ S block_sum(S value, S* room) {
    u32 warps = blockDim.x / WARP;
    value = warp_sum(value);
    if (threadIdx.x % WARP == 0) room[threadIdx.x / WARP] = value;
    __syncthreads();
    S sum = S(0);
    for (u32 w = 0; w < warps; w++) sum += room[w];
    __syncthreads();
    return sum;
}
__device__ __forceinline__ float block_max(float value, float* room) {
    u32 warps = blockDim.x / WARP;
    value = warp_max(value);
    if (threadIdx.x % WARP == 0) room[threadIdx.x / WARP] = value;
    __syncthreads();
    float max = room[0];
    for (u32 w = 1; w < warps; w++) max = fmaxf(max, room[w]);
    __syncthreads();
    return max;
}

// ---- single instructions of a GPU; float results are accurate to a few units in the last place ----

// Selects bytes of two words, numbered 0 to 3 in `low` and 4 to 7 in `high`: digit i of `selector` is the
// number of byte i of the result. A digit of 8 or more refers to byte digit - 8 and replicates its highest
// bit eight times.
#ifdef KERNELS_ON_HOST
inline u32 permute_bytes(u32 low, u32 high, u32 selector) {
    u64 all = u64(high) << 32 | low;
    u32 out = 0;
    for (int i = 0; i < 4; i++) {
        u32 digit = selector >> (4 * i) & 15, byte = u32(all >> (digit % 8 * 8)) & 0xff;
        out |= (digit < 8 ? byte : byte >> 7 ? 0xff : 0) << (8 * i);
    }
    return out;
}
inline u32 majority(u32 a, u32 b, u32 c) { return (a & b) | (c & (a | b)); }
inline float exp2_fast(float x) { return std::exp2(x); }
inline float reciprocal_fast(float x) { return 1.0f / x; }
#else
__device__ __forceinline__ u32 permute_bytes(u32 low, u32 high, u32 selector) {
    u32 out;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(selector));
    return out;
}
// Returns, for each bit, the majority of the three words' bits. In inline assembly, because the compiler
// would turn a word whose bits are all equal into a selection.
__device__ __forceinline__ u32 majority(u32 a, u32 b, u32 c) {
    u32 out;
    asm("lop3.b32 %0, %1, %2, %3, 0xe8;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
    return out;
}
// Returns 2^x to two units in the last place; 0 if the result would be subnormal.
__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float reciprocal_fast(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif

// ---- random numbers: the same as `src/rng.rs` ----

struct Words {
    u32 w[4];
};

constexpr u32 PHILOX_MULTIPLIER_0 = 0xD2511F53u, PHILOX_MULTIPLIER_1 = 0xCD9E8D57u;
constexpr u32 PHILOX_STEP_0 = 0x9E3779B9u, PHILOX_STEP_1 = 0xBB67AE85u;

__device__ __forceinline__ Words philox(u32 c0, u32 c1, u32 c2, u32 c3, u32 k0, u32 k1) {
#pragma unroll
    for (int round = 0; round < 10; round++) {
        // A single instruction computes both halves of the product.
        u64 even = u64(PHILOX_MULTIPLIER_0) * c0, odd = u64(PHILOX_MULTIPLIER_1) * c2;
        c0 = u32(odd >> 32) ^ c1 ^ k0, c1 = u32(odd);
        c2 = u32(even >> 32) ^ c3 ^ k1, c3 = u32(even);
        k0 += PHILOX_STEP_0, k1 += PHILOX_STEP_1;
    }
    return {{c0, c1, c2, c3}};
}

// Same layout as `ops::dropout::DropoutArgs`. A threshold of 0 drops nothing; the keys are not read then.
struct Dropout {
    u32 key[2];
    u32 id[2];
    u32 threshold;
    float scale;
};

// Computes the dropout factors of the eight columns from 8 * `eighth` on, in the row with key `row_key`: see
// `src/ops/dropout/mod.rs`.
__device__ __forceinline__ void keep_eight(const Dropout& dropout, u64 row_key, u32 eighth, float (&factors)[8]) {
    u64 index = row_key << 16 | eighth;
    Words words = philox(u32(index), u32(index >> 32), dropout.id[0], dropout.id[1], dropout.key[0], dropout.key[1]);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        factors[2 * i] = (words.w[i] & 0xffffu) < dropout.threshold ? 0.0f : dropout.scale;
        factors[2 * i + 1] = (words.w[i] >> 16) < dropout.threshold ? 0.0f : dropout.scale;
    }
}
// Returns the same decisions as bits: bit i is set if column 8 * `eighth` + i is kept.
__device__ __forceinline__ u32 keep_bits(const Dropout& dropout, u64 row_key, u32 eighth) {
    u64 index = row_key << 16 | eighth;
    Words words = philox(u32(index), u32(index >> 32), dropout.id[0], dropout.id[1], dropout.key[0], dropout.key[1]);
    u32 bits = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        bits |= u32((words.w[i] & 0xffffu) >= dropout.threshold) << (2 * i);
        bits |= u32((words.w[i] >> 16) >= dropout.threshold) << (2 * i + 1);
    }
    return bits;
}
// Computes the factors of N columns from `column` on, which is a multiple of N; N is 8, 4 or 1. The other
// factors of the eight are drawn in vain.
template <int N>
__device__ __forceinline__ void keep_columns(const Dropout& dropout, u64 row_key, i64 column, float (&factors)[N]) {
    static_assert(8 % N == 0);
    float eight[8];
    keep_eight(dropout, row_key, u32(column / 8), eight);
    // Selected by comparisons, since an index known only at run time would put the array into local memory.
#pragma unroll
    for (int first = 0; first < 8; first += N) {
#pragma unroll
        for (int i = 0; i < N; i++) factors[i] = first == 0 || column % 8 == first ? eight[first + i] : factors[i];
    }
}
// Returns the factor of one column. Only an eighth of the drawn random numbers is used, so this is only for
// edges.
__device__ __forceinline__ float keep_one(const Dropout& dropout, u64 row_key, u32 column) {
    float factor[1];
    keep_columns<1>(dropout, row_key, column, factor);
    return factor[0];
}

// ---- shared memory and names ----

// The dynamic shared memory of the block, 64-byte aligned.
#ifdef KERNELS_ON_HOST
inline unsigned char* shared_memory() { return static_cast<unsigned char*>(host::shared_memory()); }
#else
__device__ __forceinline__ unsigned char* shared_memory() {
    extern __shared__ __align__(64) unsigned char memory[];
    return memory;
}
#endif

// KERNEL(name, Args, THREADS, body) defines a kernel `name` that runs `body(const Args&)`; KERNELS defines
// one for each number type, named `name_f32`, `name_bf16`, `name_f16`, that run `body<T>`. THREADS is the
// largest number of threads of a block. KERNEL_BESIDE limits the registers so that BLOCKS blocks fit on a
// multiprocessor at the same time.
#ifdef KERNELS_ON_HOST
#define KERNEL_NAMED(name, Args, THREADS, ...)                                                                  \
    static host::Registered registered_##name(                                                                  \
        #name,                                                                                                  \
        [](const void* args, const unsigned* blocks, unsigned threads, unsigned shared_bytes) {                 \
            if (threads > THREADS) host::fail(#name ": more threads than its launch bounds");                   \
            const Args& a = *static_cast<const Args*>(args);                                                    \
            host::run([&] { __VA_ARGS__(a); }, blocks, threads, shared_bytes);                                  \
        },                                                                                                      \
        sizeof(Args));
#define KERNEL_BESIDE(name, Args, THREADS, BLOCKS, ...) KERNEL_NAMED(name, Args, THREADS, __VA_ARGS__)
#else
#define KERNEL_NAMED(name, Args, THREADS, ...) \
    extern "C" __global__ void __launch_bounds__(THREADS) name(const __grid_constant__ Args a) { __VA_ARGS__(a); }
#define KERNEL_BESIDE(name, Args, THREADS, BLOCKS, ...) \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) name(const __grid_constant__ Args a) { __VA_ARGS__(a); }
#endif
#define KERNEL(name, Args, THREADS, body) KERNEL_NAMED(name, Args, THREADS, body)
#define KERNELS(name, Args, THREADS, body)             \
    KERNEL_NAMED(name##_f32, Args, THREADS, body<float>) \
    KERNEL_NAMED(name##_bf16, Args, THREADS, body<bf16>) \
    KERNEL_NAMED(name##_f16, Args, THREADS, body<f16>)
