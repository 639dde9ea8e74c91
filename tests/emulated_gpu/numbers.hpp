// The types of values on a GPU, by cuBLASLt's numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "streams.hpp"

namespace emulated {

enum Type { F32 = 0, F16 = 2, BF16 = 14 };

inline size_t bytes_of(int type) { return type == F32 ? 4 : 2; }

inline float widen(const void* from, int type, size_t index) {
    if (type == F32) return static_cast<const float*>(from)[index];
    if (type == F16) return float(static_cast<const _Float16*>(from)[index]);
    if (type != BF16) fail("a product has values of type %d", type);
    uint32_t bits = uint32_t(static_cast<const uint16_t*>(from)[index]) << 16;
    float value;
    return std::memcpy(&value, &bits, 4), value;
}

inline void narrow(void* to, int type, size_t index, float value) {
    if (type == F32) {
        static_cast<float*>(to)[index] = value;
    } else if (type == F16) {
        static_cast<_Float16*>(to)[index] = _Float16(value);
    } else {
        uint32_t bits;
        std::memcpy(&bits, &value, 4);
        bool is_nan = value != value;
        static_cast<uint16_t*>(to)[index] = uint16_t(is_nan ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

}  // namespace emulated
