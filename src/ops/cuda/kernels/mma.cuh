// Products of 16 x 16 tiles on tensor cores, and copies from global to shared memory that run concurrently
// with the arithmetic.
//
// Layouts are those of PTX, "Matrix fragments for mma.m16n8k16": with g = lane / 4 and c = 2 (lane % 4), a
// lane holds of
//   A [16, 16]: a[0] = A[g][c, c + 1], a[1] = A[g + 8][c, c + 1]; a[2], a[3] the same of columns c + 8, c + 9
//   B [16, 8]: b0 = B[c, c + 1][g], b1 = B[c + 8, c + 9][g]
//   C [16, 8]: c[0], c[1] = C[g][c, c + 1]; c[2], c[3] = C[g + 8][c, c + 1]
// so two neighbouring tiles of C, rounded, form one tile of A.
//
// On sm_75, f16 is the only half type, and its product is computed as two products of half the depth; bf16
// traps there.
#pragma once
#include "common.cuh"

// Packs two values into one register, the first in the low half.
template <typename T>
__device__ __forceinline__ u32 pack(float low, float high);

#ifdef KERNELS_ON_HOST

template <typename T>
inline u32 pack(float low, float high) {
    return u32(narrow<T>(low).bits) | u32(narrow<T>(high).bits) << 16;
}

template <typename T>
inline void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    auto low = [](u32 two) { return widen(T{uint16_t(two)}); };
    auto high = [](u32 two) { return widen(T{uint16_t(two >> 16)}); };
    // Each value is widened once, by the lane that holds it.
    host::Operands mine = {
        {{low(a[0]), high(a[0]), low(a[2]), high(a[2])}, {low(a[1]), high(a[1]), low(a[3]), high(a[3])}},
        {low(b0), high(b0), low(b1), high(b1)},
    };
    host::add_products(c, host::share(mine), threadIdx.x % WARP);
}

inline void load_matrices(u32 (&r)[4], const void* row) {
    host::aligned(row, 16);
    const auto& slots = host::share(*static_cast<const Vec<u32, 4>*>(row));
    int lane = threadIdx.x % WARP;
    for (int i = 0; i < 4; i++) r[i] = host::value_of<Vec<u32, 4>>(slots, i * 8 + lane / 4).v[lane % 4];
}

inline void load_matrices_transposed(u32 (&r)[4], const void* row) {
    host::aligned(row, 16);
    const auto& slots = host::share(*static_cast<const Vec<u32, 4>*>(row));
    int lane = threadIdx.x % WARP, column = lane / 4;
    auto element = [&](int row) { return host::value_of<Vec<u32, 4>>(slots, row).v[column / 2] >> (16 * (column % 2)) & 0xffffu; };
    for (int i = 0; i < 4; i++) r[i] = element(i * 8 + lane % 4 * 2) | element(i * 8 + lane % 4 * 2 + 1) << 16;
}

template <int BYTES>
inline void copy_async(void* to, const void* from, bool valid) {
    host::aligned(to, BYTES), host::aligned(from, BYTES);
    host::start_copy(to, from, BYTES, valid);
}

inline void wait_for_copies() { host::finish_copies(); }


#else

__device__ __forceinline__ u32 shared_address(const void* at) { return static_cast<u32>(__cvta_generic_to_shared(at)); }

template <>
__device__ __forceinline__ u32 pack<bf16>(float low, float high) {
    __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<u32*>(&two);
}
template <>
__device__ __forceinline__ u32 pack<f16>(float low, float high) {
    __half2 two = __floats2half2_rn(low, high);
    return *reinterpret_cast<u32*>(&two);
}

// Computes c += a b. Every lane of the warp must take part.
template <typename T>
__device__ __forceinline__ void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1);
template <>
__device__ __forceinline__ void mma<bf16>(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    __trap();
#endif
}
template <>
__device__ __forceinline__ void mma<f16>(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}

// Loads four 8 x 8 matrices from shared memory. Lane L passes the address of row L % 8 of matrix L / 8, 16
// bytes. r[i] receives row lane / 4 of matrix i, columns 2 (lane % 4) and the next.
__device__ __forceinline__ void load_matrices(u32 (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
// Loads the transposes of the four matrices.
__device__ __forceinline__ void load_matrices_transposed(u32 (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Copies BYTES (4, 8 or 16) to shared memory, or zeros if `valid` is false, in which case `from` is not read.
// The bytes are there for this thread after its `wait_for_copies`, and for other threads after a barrier that
// follows it.
template <int BYTES>
__device__ __forceinline__ void copy_async(void* to, const void* from, bool valid) {
#if __CUDA_ARCH__ >= 800
    u32 bytes = valid ? BYTES : 0;
    if (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(shared_address(to)), "l"(from), "n"(BYTES), "r"(bytes)
                     : "memory");
    }
#else
    using Piece = Vec<u32, BYTES / 4>;
    Piece piece = {};
    if (valid) piece = *static_cast<const Piece*>(from);
    *static_cast<Piece*>(to) = piece;
#endif
}

__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;\n" ::: "memory");
#endif
}

#endif
