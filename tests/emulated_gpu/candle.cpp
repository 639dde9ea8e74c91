// The few kernels of candle's that a run launches: copies of rows, conversions and sums, of what lies without gaps.
#include "candle.hpp"

#include <cstring>

#include "numbers.hpp"
#include "streams.hpp"

namespace emulated {
namespace {

template <typename T>
T argument(const std::vector<std::vector<char>>& args, size_t index) {
    T value;
    return std::memcpy(&value, args[index].data(), sizeof(T)), value;
}

// An error where values lie with gaps. Behind `count` dimensions stand the strides of each operand; without them there are
// no gaps.
void check_gaps(size_t count, const size_t* info, size_t operands) {
    for (size_t operand = 1; info && operand <= operands; operand++) {
        size_t step = 1;
        for (size_t d = count; d-- > 0; step *= info[d]) {
            if (info[d] > 1 && info[operand * count + d] != step) fail("a kernel of candle's reads with gaps");
        }
    }
}

Candle copy_rows(size_t bytes) {
    return {{8, 8, 4, 4, 4, 4}, [bytes](const auto& args) {
        auto *from = argument<const char*>(args, 0);
        auto *to = argument<char*>(args, 1);
        auto rows = argument<uint32_t>(args, 2), cols = argument<uint32_t>(args, 3);
        size_t from_step = argument<uint32_t>(args, 4) * bytes, to_step = argument<uint32_t>(args, 5) * bytes;
        for (size_t row = 0; row < rows; row++) std::memcpy(to + row * to_step, from + row * from_step, cols * bytes);
    }};
}

Candle convert(int from, int to) {
    return {{8, 8, 8, 8, 8}, [from, to](const auto& args) {
        check_gaps(argument<size_t>(args, 1), argument<const size_t*>(args, 2), 1);
        for (size_t i = 0; i < argument<size_t>(args, 0); i++) {
            narrow(argument<void*>(args, 4), to, i, widen(argument<const void*>(args, 3), from, i));
        }
    }};
}

Candle add() {
    return {{8, 8, 8, 8, 8, 8}, [](const auto& args) {
        check_gaps(argument<size_t>(args, 1), argument<const size_t*>(args, 2), 2);
        auto *left = argument<const float*>(args, 3), *right = argument<const float*>(args, 4);
        auto* sum = argument<float*>(args, 5);
        for (size_t i = 0; i < argument<size_t>(args, 0); i++) sum[i] = left[i] + right[i];
    }};
}

}  // namespace

const Candle* candle(const std::string& name) {
    static const std::map<std::string, Candle> all = {
        {"copy2d_f32", copy_rows(4)}, {"copy2d_bf16", copy_rows(2)}, {"copy2d_f16", copy_rows(2)},
        {"cast_f32_bf16", convert(F32, BF16)}, {"cast_bf16_f32", convert(BF16, F32)},
        {"cast_f32_f16", convert(F32, F16)}, {"cast_f16_f32", convert(F16, F32)},
        {"badd_f32", add()},
    };
    auto found = all.find(name);
    return found == all.end() ? nullptr : &found->second;
}

}  // namespace emulated
