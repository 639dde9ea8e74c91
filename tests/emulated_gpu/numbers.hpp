// The types of values on a GPU, by cuBLASLt's numbers; they are widened and rounded as kernels do it.
#pragma once

#define KERNELS_ON_HOST
#include "common.cuh"
#include "streams.hpp"

namespace emulated {

enum Type { F32 = 0, F16 = 2, BF16 = 14 };

inline size_t bytes_of(int type) { return type == F32 ? 4 : 2; }

inline float widen(const void* from, int type, size_t index) {
    if (type == F32) return static_cast<const float*>(from)[index];
    if (type == F16) return ::widen(static_cast<const f16*>(from)[index]);
    if (type != BF16) fail("a product has values of type %d", type);
    return ::widen(static_cast<const bf16*>(from)[index]);
}

inline void narrow(void* to, int type, size_t index, float value) {
    if (type == F32) {
        static_cast<float*>(to)[index] = value;
    } else if (type == F16) {
        static_cast<f16*>(to)[index] = ::narrow<f16>(value);
    } else {
        static_cast<bf16*>(to)[index] = ::narrow<bf16>(value);
    }
}

}  // namespace emulated
