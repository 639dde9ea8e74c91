// A GPU that is none: the driver's functions that this program calls, on the memory of the host. Kernels are those of
// src/ops as C++ (src/ops/cuda/kernels/host.hpp), found by their names, and a few of candle's.
//
// What is queued on a stream is done when somebody waits for it, or when too much is queued, so that a missing wait
// between streams, or between a stream and the host, shows in the numbers; `EMULATED_GPU=early` does it at once.
// `EMULATED_GPUS` is the number of devices (2). Memory begins as NaN, and is so again when it is freed.
#include <cuda.h>

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "candle.hpp"
#include "streams.hpp"

extern "C" int mlmtrain_host_launch(const char* name, const void* args, size_t args_bytes, const unsigned* blocks,
                                    unsigned threads, unsigned shared_bytes);
extern "C" void mlmtrain_host_order(unsigned order, uint64_t seed, bool watched);
extern "C" size_t mlmtrain_host_args_bytes(const char* name);

namespace emulated {

struct Stream {
    std::deque<Work> waiting;
    uint64_t queued = 0, done = 0;
    bool runs = false;
};

void fail(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::fputs("emulated GPU: ", stderr);
    std::vfprintf(stderr, format, arguments);
    std::fputs("\n", stderr);
    std::abort();
}

namespace {

// More than this is never queued.
constexpr uint64_t QUEUED_MOST = 256;
constexpr size_t TOTAL_BYTES = size_t(16) << 30;
constexpr size_t FILLED_BYTES_MAX = size_t(256) << 20;
constexpr size_t USUAL_SHARED_BYTES = 48 << 10, SHARED_BYTES_MAX = 227 << 10;

std::mutex lock_of_all;
std::set<Stream*> streams;
Stream* default_stream() {
    static Stream* stream = *streams.insert(new Stream).first;
    return stream;
}

struct Memory {
    std::map<uintptr_t, size_t> blocks, pinned;
    size_t used = 0, most = 0;
} memory;

struct Event {
    Stream* stream = nullptr;
    uint64_t at = 0;
    std::shared_ptr<double> seconds;
    bool is_done() const { return !stream || stream->done >= at; }
};

struct Function {
    std::string name;
    std::vector<size_t> argument_bytes;
    const Candle* candle;
    size_t shared_bytes = USUAL_SHARED_BYTES;
};

bool is_early() {
    static bool early = std::getenv("EMULATED_GPU") && !std::strcmp(std::getenv("EMULATED_GPU"), "early");
    return early;
}

int device_count() {
    const char* count = std::getenv("EMULATED_GPUS");
    return count ? std::atoi(count) : 2;
}

// Does what is queued up to this number, as far as that can be done now.
bool advance(Stream* stream, uint64_t to) {
    if (stream->done >= to) return true;
    if (stream->runs) fail("streams wait for each other");
    stream->runs = true;
    while (stream->done < to && stream->waiting.front()()) {
        stream->waiting.pop_front();
        stream->done++;
    }
    stream->runs = false;
    return stream->done >= to;
}

// Until that is done; others have the lock meanwhile.
void wait_for(std::unique_lock<std::mutex>& lock, Stream* stream, uint64_t to) {
    while (!advance(stream, to)) {
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        lock.lock();
    }
}

void wait_for_all(std::unique_lock<std::mutex>& lock) {
    for (Stream* stream : std::vector<Stream*>(streams.begin(), streams.end())) wait_for(lock, stream, stream->queued);
}

void* allocate(size_t bytes) {
    if (memory.used + bytes > TOTAL_BYTES) return nullptr;
    void* block;
    // Not a byte more: AddressSanitizer, where this is built with it, sees what kernels touch behind it.
    if (posix_memalign(&block, 256, bytes)) return nullptr;
    if (bytes <= FILLED_BYTES_MAX) std::memset(block, 0xff, bytes);
    memory.blocks[uintptr_t(block)] = bytes;
    memory.used += bytes;
    memory.most = std::max(memory.most, memory.used);
    return block;
}

void release(uintptr_t block) {
    auto found = memory.blocks.find(block);
    if (found == memory.blocks.end()) fail("memory is freed that is not there");
    if (found->second <= FILLED_BYTES_MAX) std::memset(reinterpret_cast<void*>(block), 0xff, found->second);
    memory.used -= found->second;
    memory.blocks.erase(found);
    std::free(reinterpret_cast<void*>(block));
}

bool lies_in(const std::map<uintptr_t, size_t>& blocks, uintptr_t at, size_t bytes) {
    auto behind = blocks.upper_bound(at);
    if (behind == blocks.begin()) return false;
    auto [start, length] = *std::prev(behind);
    return at + bytes <= start + length;
}

bool is_pinned(const void* at, size_t bytes) { return lies_in(memory.pinned, uintptr_t(at), bytes); }

double now_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void require_on_gpu(const void* at, size_t bytes, const char* what) {
    if (bytes && !lies_in(memory.blocks, uintptr_t(at), bytes)) fail("%s is not in the memory of the GPU", what);
}

std::unique_lock<std::mutex> locked() { return std::unique_lock<std::mutex>(lock_of_all); }

Stream* stream_of(void* handle) { return handle ? static_cast<Stream*>(handle) : default_stream(); }

void queue(Stream* stream, Work work) {
    stream->waiting.push_back(std::move(work));
    stream->queued++;
    if (is_early()) {
        advance(stream, stream->queued);
    } else if (stream->queued - stream->done > QUEUED_MOST) {
        advance(stream, stream->queued - QUEUED_MOST / 2);
    }
}

}  // namespace emulated

using namespace emulated;

#define FUNCTION extern "C" __attribute__((visibility("default"))) CUresult

// ---- devices and contexts ----

FUNCTION cuInit(unsigned) { return device_count() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE; }
FUNCTION cuDriverGetVersion(int* version) { return *version = CUDA_VERSION, CUDA_SUCCESS; }
FUNCTION cuDeviceGetCount(int* count) { return *count = device_count(), CUDA_SUCCESS; }
FUNCTION cuDeviceGet(CUdevice* device, int ordinal) {
    return ordinal < device_count() ? (*device = ordinal, CUDA_SUCCESS) : CUDA_ERROR_INVALID_DEVICE;
}
FUNCTION cuDeviceGetName(char* name, int bytes, CUdevice device) {
    return std::snprintf(name, size_t(bytes), "emulated GPU %d", device), CUDA_SUCCESS;
}
FUNCTION cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
    std::memset(uuid, 0xe0, sizeof(*uuid));
    return uuid->bytes[15] = char(device), CUDA_SUCCESS;
}
FUNCTION cuDeviceTotalMem_v2(size_t* bytes, CUdevice) { return *bytes = TOTAL_BYTES, CUDA_SUCCESS; }
FUNCTION cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
    switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
        case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: *value = 1; break;
        default: fail("attribute %d of a device is not emulated", int(attribute));
    }
    return CUDA_SUCCESS;
}
FUNCTION cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    return *context = reinterpret_cast<CUcontext>(uintptr_t(device) + 1), CUDA_SUCCESS;
}
FUNCTION cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
static thread_local CUcontext current;
FUNCTION cuCtxSetCurrent(CUcontext context) { return current = context, CUDA_SUCCESS; }
FUNCTION cuCtxGetCurrent(CUcontext* context) { return *context = current, CUDA_SUCCESS; }
FUNCTION cuCtxSynchronize() {
    auto lock = locked();
    return wait_for_all(lock), CUDA_SUCCESS;
}
FUNCTION cuGetErrorName(CUresult, const char** text) { return *text = "an error of the emulated GPU", CUDA_SUCCESS; }
FUNCTION cuGetErrorString(CUresult result, const char** text) {
    return *text = result == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "an error of the emulated GPU", CUDA_SUCCESS;
}

// ---- streams and events ----

FUNCTION cuStreamCreate(CUstream* stream, unsigned) {
    auto lock = locked();
    return *stream = reinterpret_cast<CUstream>(*streams.insert(new Stream).first), CUDA_SUCCESS;
}
FUNCTION cuStreamDestroy_v2(CUstream) { return CUDA_SUCCESS; }  // what is queued on it is still done
FUNCTION cuStreamSynchronize(CUstream handle) {
    auto lock = locked();
    Stream* stream = stream_of(handle);
    return wait_for(lock, stream, stream->queued), CUDA_SUCCESS;
}
FUNCTION cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
    return *status = CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
}
FUNCTION cuStreamWaitEvent(CUstream handle, CUevent event, unsigned) {
    auto lock = locked();
    Event as_it_is = *reinterpret_cast<Event*>(event);
    if (as_it_is.is_done()) return CUDA_SUCCESS;
    queue(stream_of(handle), [as_it_is] { return advance(as_it_is.stream, as_it_is.at); });
    return CUDA_SUCCESS;
}
FUNCTION cuEventCreate(CUevent* event, unsigned) { return *event = reinterpret_cast<CUevent>(new Event), CUDA_SUCCESS; }
FUNCTION cuEventDestroy_v2(CUevent event) {
    auto lock = locked();
    return delete reinterpret_cast<Event*>(event), CUDA_SUCCESS;
}
FUNCTION cuEventRecord(CUevent handle, CUstream of) {
    auto lock = locked();
    auto* event = reinterpret_cast<Event*>(handle);
    event->stream = stream_of(of);
    event->at = event->stream->queued + 1;
    event->seconds = std::make_shared<double>(0);
    queue(event->stream, [seconds = event->seconds] { return *seconds = now_seconds(), true; });
    return CUDA_SUCCESS;
}
FUNCTION cuEventQuery(CUevent handle) {
    auto lock = locked();
    auto* event = reinterpret_cast<Event*>(handle);
    bool is_done = event->is_done() || advance(event->stream, event->at);
    return is_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
FUNCTION cuEventSynchronize(CUevent handle) {
    auto lock = locked();
    Event event = *reinterpret_cast<Event*>(handle);
    if (event.stream) wait_for(lock, event.stream, event.at);
    return CUDA_SUCCESS;
}
FUNCTION cuEventElapsedTime_v2(float* milliseconds, CUevent begin, CUevent end) {
    auto lock = locked();
    auto *first = reinterpret_cast<Event*>(begin), *last = reinterpret_cast<Event*>(end);
    if (!first->is_done() || !last->is_done()) return CUDA_ERROR_NOT_READY;
    return *milliseconds = float((*last->seconds - *first->seconds) * 1e3), CUDA_SUCCESS;
}

// ---- memory ----

FUNCTION cuMemAlloc_v2(CUdeviceptr* block, size_t bytes) {
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    auto lock = locked();
    *block = CUdeviceptr(allocate(bytes));
    return *block ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
FUNCTION cuMemFree_v2(CUdeviceptr block) {
    auto lock = locked();
    wait_for_all(lock);
    return release(block), CUDA_SUCCESS;
}
FUNCTION cuMemAllocAsync(CUdeviceptr* block, size_t bytes, CUstream) { return cuMemAlloc_v2(block, bytes); }
FUNCTION cuMemFreeAsync(CUdeviceptr block, CUstream stream) {
    auto lock = locked();
    queue(stream_of(stream), [block] { return release(block), true; });
    return CUDA_SUCCESS;
}
FUNCTION cuMemHostAlloc(void** block, size_t bytes, unsigned) {
    auto lock = locked();
    if (!(*block = std::aligned_alloc(4096, (bytes + 4095) & ~size_t(4095)))) return CUDA_ERROR_OUT_OF_MEMORY;
    return memory.pinned[uintptr_t(*block)] = bytes, CUDA_SUCCESS;
}
FUNCTION cuMemFreeHost(void* block) {
    auto lock = locked();
    wait_for_all(lock);
    memory.pinned.erase(uintptr_t(block));
    return std::free(block), CUDA_SUCCESS;
}
FUNCTION cuMemGetInfo_v2(size_t* free, size_t* total) {
    auto lock = locked();
    return *free = TOTAL_BYTES - memory.used, *total = TOTAL_BYTES, CUDA_SUCCESS;
}
FUNCTION cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice) {
    return *pool = reinterpret_cast<CUmemoryPool>(&memory), CUDA_SUCCESS;
}
FUNCTION cuMemPoolGetAttribute(CUmemoryPool, CUmemPool_attribute attribute, void* value) {
    auto lock = locked();
    bool is_most = attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH || attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
    return *static_cast<cuuint64_t*>(value) = is_most ? memory.most : memory.used, CUDA_SUCCESS;
}
FUNCTION cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute attribute, void*) {
    auto lock = locked();
    if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) memory.most = memory.used;
    return CUDA_SUCCESS;
}
FUNCTION cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream) {
    auto lock = locked();
    queue(stream_of(stream), [=] {
        auto* start = reinterpret_cast<void*>(at);
        require_on_gpu(start, bytes, "what is filled");
        return std::memset(start, value, bytes), true;
    });
    return CUDA_SUCCESS;
}
FUNCTION cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    auto lock = locked();
    // Memory that may move is read before this returns, page-locked memory when its turn has come.
    auto copy = std::make_shared<std::vector<char>>();
    bool is_copied = !is_pinned(from, bytes);
    if (is_copied) copy->assign(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
    queue(stream_of(stream), [=] {
        auto* start = reinterpret_cast<void*>(to);
        require_on_gpu(start, bytes, "the end of a copy");
        return std::memcpy(start, is_copied ? copy->data() : from, bytes), true;
    });
    return CUDA_SUCCESS;
}
FUNCTION cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream handle) {
    auto lock = locked();
    Stream* stream = stream_of(handle);
    queue(stream, [=] {
        auto* start = reinterpret_cast<void*>(from);
        require_on_gpu(start, bytes, "the beginning of a copy");
        return std::memcpy(to, start, bytes), true;
    });
    // Into memory that may move, the driver copies while the caller waits.
    if (!is_pinned(to, bytes)) wait_for(lock, stream, stream->queued);
    return CUDA_SUCCESS;
}
FUNCTION cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    auto lock = locked();
    queue(stream_of(stream), [=] {
        auto *start = reinterpret_cast<void*>(from), *end = reinterpret_cast<void*>(to);
        require_on_gpu(start, bytes, "the beginning of a copy");
        require_on_gpu(end, bytes, "the end of a copy");
        return std::memcpy(end, start, bytes), true;
    });
    return CUDA_SUCCESS;
}

// ---- kernels ----

// A module is its text: candle's are PTX, of which a GPU takes what the build has compiled; ours, fat binaries, have
// none.
FUNCTION cuModuleLoadData(CUmodule* module, const void* image) {
    auto* text = static_cast<const char*>(image);
    bool is_ptx = !std::strncmp(text, "//", 2) || !std::strncmp(text, ".version", 8);
    return *module = reinterpret_cast<CUmodule>(new std::string(is_ptx ? text : "")), CUDA_SUCCESS;
}
FUNCTION cuModuleUnload(CUmodule module) { return delete reinterpret_cast<std::string*>(module), CUDA_SUCCESS; }
FUNCTION cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    auto& ptx = *reinterpret_cast<std::string*>(module);
    auto* made = new Function{name, {mlmtrain_host_args_bytes(name)}, nullptr};
    bool is_there = made->argument_bytes[0] > 0;
    if (!ptx.empty()) {
        is_there = ptx.find(".entry " + made->name + "(") != std::string::npos;
        made->candle = candle(name);
        if (made->candle) made->argument_bytes = made->candle->argument_bytes;
    }
    if (!is_there || (!ptx.empty() && !made->candle)) {
        const char* why = is_there ? "kernel `%s` of candle's is not emulated" : "the build has no kernel `%s`";
        std::fprintf(stderr, (std::string("emulated GPU: ") + why + "\n").c_str(), name);
        return CUDA_ERROR_NOT_FOUND;
    }
    return *function = reinterpret_cast<CUfunction>(made), CUDA_SUCCESS;
}
FUNCTION cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) fail("an attribute of a kernel is not emulated");
    if (size_t(value) > SHARED_BYTES_MAX) return CUDA_ERROR_INVALID_VALUE;
    return reinterpret_cast<Function*>(function)->shared_bytes = size_t(value), CUDA_SUCCESS;
}
FUNCTION cuLaunchKernel(CUfunction handle, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                        unsigned threads_z, unsigned shared_bytes, CUstream stream, void** parameters, void** extra) {
    auto* function = reinterpret_cast<Function*>(handle);
    if (threads > 1024 || threads_y * threads_z != 1 || y > 65535 || z > 65535 || !x || !y || !z || extra ||
        shared_bytes > function->shared_bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::vector<std::vector<char>> args;
    for (size_t bytes : function->argument_bytes) {
        auto* value = static_cast<const char*>(parameters[args.size()]);
        args.emplace_back(value, value + bytes);
    }
    auto lock = locked();
    queue(stream_of(stream), [=] {
        if (function->candle) return function->candle->run(args), true;
        unsigned blocks[3] = {x, y, z};
        mlmtrain_host_order(0, 0, false);
        int outcome = mlmtrain_host_launch(function->name.c_str(), args[0].data(), args[0].size(), blocks, threads,
                                           shared_bytes);
        if (outcome) fail("kernel `%s` ended with %d", function->name.c_str(), outcome);
        return true;
    });
    return CUDA_SUCCESS;
}
