// Streams and events of the GPU that is none: what is queued is done as late as it may be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

namespace emulated {

// A piece of work; false where it has to be asked again, because another process is not ready.
using Work = std::function<bool()>;

struct Stream;

// All state of this process, streams and memory alike, is under this lock.
std::unique_lock<std::mutex> locked();

// Queues work, under the lock.
void queue(Stream* stream, Work work);

// The stream behind a handle of the driver.
Stream* stream_of(void* handle);

// An error unless so many bytes from there are in one piece of the GPU's memory, at the time of the call.
void require_on_gpu(const void* at, size_t bytes, const char* what);

[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace emulated
