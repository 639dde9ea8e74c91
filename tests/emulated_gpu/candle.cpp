// The kernels of candle's that the program and its tests launch on a GPU, outside of steps.
#include "candle.hpp"

#include <cstring>

#include "numbers.hpp"

namespace emulated {
namespace {

using Arguments = std::vector<std::vector<char>>;

template <typename T>
T argument(const Arguments& args, size_t index) {
    T value;
    return std::memcpy(&value, args[index].data(), sizeof(T)), value;
}

// The first three arguments of most kernels: how many values, and how operands lie: behind the dimensions stand the
// strides of each operand; null where all lie without gaps.
struct Places {
    size_t count, dimensions;
    const size_t* info;

    explicit Places(const Arguments& args)
        : count(argument<size_t>(args, 0)), dimensions(argument<size_t>(args, 1)), info(argument<size_t*>(args, 2)) {}

    size_t of(size_t operand, size_t index) const {
        if (!info) return index;
        size_t place = 0;
        const size_t* strides = info + (operand + 1) * dimensions;
        for (size_t d = dimensions; d-- > 0; index /= info[d]) place += index % info[d] * strides[d];
        return place;
    }
};

Candle copy_rows(size_t bytes) {
    return {{8, 8, 4, 4, 4, 4}, [bytes](const Arguments& args) {
        auto* from = argument<const char*>(args, 0);
        auto* to = argument<char*>(args, 1);
        auto rows = argument<uint32_t>(args, 2), cols = argument<uint32_t>(args, 3);
        size_t from_step = argument<uint32_t>(args, 4) * bytes, to_step = argument<uint32_t>(args, 5) * bytes;
        for (size_t row = 0; row < rows; row++) std::memcpy(to + row * to_step, from + row * from_step, cols * bytes);
    }};
}

Candle convert(int from, int to) {
    return {{8, 8, 8, 8, 8}, [from, to](const Arguments& args) {
        Places places(args);
        for (size_t i = 0; i < places.count; i++) {
            narrow(argument<void*>(args, 4), to, i, widen(argument<const void*>(args, 3), from, places.of(0, i)));
        }
    }};
}

Candle combine(float (*of)(float, float)) {
    return {{8, 8, 8, 8, 8, 8}, [of](const Arguments& args) {
        Places places(args);
        auto *left = argument<const float*>(args, 3), *right = argument<const float*>(args, 4);
        auto* out = argument<float*>(args, 5);
        for (size_t i = 0; i < places.count; i++) out[i] = of(left[places.of(0, i)], right[places.of(1, i)]);
    }};
}

Candle affine() {
    return {{8, 8, 8, 8, 8, 4, 4}, [](const Arguments& args) {
        Places places(args);
        auto* from = argument<const float*>(args, 3);
        auto factor = argument<float>(args, 5), more = argument<float>(args, 6);
        auto* out = argument<float*>(args, 4);
        for (size_t i = 0; i < places.count; i++) out[i] = (from ? from[places.of(0, i)] : out[i]) * factor + more;
    }};
}

Candle fill() {
    return {{8, 8, 8, 4, 8}, [](const Arguments& args) {
        Places places(args);
        for (size_t i = 0; i < places.count; i++) argument<float*>(args, 4)[places.of(0, i)] = argument<float>(args, 3);
    }};
}

Candle gather() {
    return {{8, 8, 8, 8, 8, 8, 8, 8}, [](const Arguments& args) {
        auto *ids = argument<const uint32_t*>(args, 1);
        auto *from = argument<const float*>(args, 2);
        auto* out = argument<float*>(args, 3);
        auto left = argument<size_t>(args, 4), of = argument<size_t>(args, 5), taken = argument<size_t>(args, 6);
        auto right = argument<size_t>(args, 7);
        for (size_t i = 0; i < left * taken * right; i++) {
            out[i] = from[(i / (taken * right) * of + ids[i]) * right + i % right];
        }
    }};
}

}  // namespace

const Candle* candle(const std::string& name) {
    static const std::map<std::string, Candle> all = {
        {"copy2d_f32", copy_rows(4)},
        {"copy2d_f16", copy_rows(2)},
        {"copy2d_bf16", copy_rows(2)},
        {"cast_f32_bf16", convert(F32, BF16)},
        {"cast_bf16_f32", convert(BF16, F32)},
        {"cast_f32_f16", convert(F32, F16)},
        {"cast_f16_f32", convert(F16, F32)},
        {"ucopy_f32", convert(F32, F32)},
        {"badd_f32", combine([](float a, float b) { return a + b; })},
        {"bsub_f32", combine([](float a, float b) { return a - b; })},
        {"affine_f32", affine()},
        {"const_set_f32", fill()},
        {"gather_u32_f32", gather()},
    };
    auto found = all.find(name);
    return found == all.end() ? nullptr : &found->second;
}

}  // namespace emulated
