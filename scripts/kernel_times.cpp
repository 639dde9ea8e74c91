// How long each kernel of a program took on the GPU: `CUDA_INJECTION64_PATH=kernel_times.so KERNEL_TIMES=FILE program`,
// where CUPTI is found (`LD_LIBRARY_PATH`), writes a line a kernel, the one that took longest first. Kernels run as
// they always do, beside and behind each other.
#include <cuda.h>
#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

struct Times {
    uint64_t count = 0, nanoseconds = 0;
};
std::map<std::string, Times> times;
uint64_t first = UINT64_MAX, last = 0;
std::mutex guard;
decltype(&cuptiActivityGetNextRecord) next_record;
decltype(&cuptiActivityFlushAll) flush_all;

void give_room(uint8_t** room, size_t* bytes, size_t* records) {
    *bytes = 8 << 20;
    *records = 0;
    *room = static_cast<uint8_t*>(aligned_alloc(64, *bytes));
}

void take(CUcontext, uint32_t, uint8_t* room, size_t, size_t bytes) {
    std::lock_guard<std::mutex> held(guard);
    for (CUpti_Activity* record = nullptr; next_record(room, bytes, &record) == CUPTI_SUCCESS;) {
        if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
        auto* kernel = reinterpret_cast<CUpti_ActivityKernel9*>(record);
        Times& of_name = times[kernel->name ? kernel->name : "?"];
        of_name.count++;
        of_name.nanoseconds += kernel->end - kernel->start;
        first = std::min<uint64_t>(first, kernel->start);
        last = std::max<uint64_t>(last, kernel->end);
    }
    free(room);
}

void write() {
    flush_all(1);
    std::lock_guard<std::mutex> held(guard);
    const char* path = getenv("KERNEL_TIMES");
    FILE* file = path ? fopen(path, "w") : nullptr;
    if (!file || times.empty()) return;
    std::vector<std::pair<std::string, Times>> all(times.begin(), times.end());
    std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.second.nanoseconds > b.second.nanoseconds; });
    uint64_t busy = 0;
    for (auto& [name, of_name] : all) busy += of_name.nanoseconds;
    fprintf(file, "# %.3f ms in kernels, %.3f ms from the first to the last\n", busy / 1e6, (last - first) / 1e6);
    fprintf(file, "# ms in all, launches, us each, kernel\n");
    for (auto& [name, of_name] : all) {
        int status = 0;
        char* readable = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
        fprintf(file, "%.3f\t%lu\t%.1f\t%.200s\n", of_name.nanoseconds / 1e6, static_cast<unsigned long>(of_name.count),
                of_name.nanoseconds / 1e3 / of_name.count, status == 0 ? readable : name.c_str());
        free(readable);
    }
    fclose(file);
}

}  // namespace

// The driver calls it when it is started.
extern "C" int InitializeInjection() {
    void* cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_GLOBAL);
    if (!cupti) {
        fprintf(stderr, "kernel_times: %s\n", dlerror());
        return 1;
    }
    next_record = reinterpret_cast<decltype(next_record)>(dlsym(cupti, "cuptiActivityGetNextRecord"));
    flush_all = reinterpret_cast<decltype(flush_all)>(dlsym(cupti, "cuptiActivityFlushAll"));
    auto call_back =
        reinterpret_cast<decltype(&cuptiActivityRegisterCallbacks)>(dlsym(cupti, "cuptiActivityRegisterCallbacks"));
    auto enable = reinterpret_cast<decltype(&cuptiActivityEnable)>(dlsym(cupti, "cuptiActivityEnable"));
    if (call_back(give_room, take) != CUPTI_SUCCESS || enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS) {
        fprintf(stderr, "kernel_times: CUPTI gives no records\n");
    }
    atexit(write);
    return 1;
}
