// Kernels of candle's, by name.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace emulated {

struct Candle {
    std::vector<size_t> argument_bytes;
    std::function<void(const std::vector<std::vector<char>>&)> run;
};

// Null for one that is not emulated.
const Candle* candle(const std::string& name);

}  // namespace emulated
