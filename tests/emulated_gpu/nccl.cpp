// NCCL between GPUs that are none: processes of one machine exchange by shared memory. What a call or group of calls
// gives lies in the process's part of it, behind a list of the calls; a call without its counterpart ends the program.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "streams.hpp"

using emulated::fail;
using emulated::require_on_gpu;

namespace {

constexpr int PROCESSES_MAX = 16;
constexpr size_t PART_BYTES = size_t(64) << 20, CALLS_MAX = 256;
constexpr int F32 = 7, UINT8 = 1, SUM = 0;

enum class Kind { ADD, GIVE, SEND, RECEIVE };

struct Call {
    Kind kind;
    int other;  // who gives it, or the other end
    size_t bytes, offset;
    const void* from;
    void* to;
};

struct Part {
    std::atomic<uint64_t> given, taken;  // groups of calls so far
    size_t count;
    Call calls[CALLS_MAX];
    char data[PART_BYTES];
};

struct Meeting {
    std::atomic<int> joined;
    Part parts[PROCESSES_MAX];
};

struct Group {
    Meeting* meeting;
    int rank, size;
    uint64_t queued = 0;
};

struct Id {
    char text[128];
};

thread_local int depth = 0;
thread_local std::vector<Call> pending;
thread_local Group* pending_group;
thread_local void* pending_stream;

bool all_have(const Group& group, std::atomic<uint64_t> Part::*what, uint64_t number) {
    for (int rank = 0; rank < group.size; rank++) {
        if ((group.meeting->parts[rank].*what).load() < number) return false;
    }
    return true;
}

void give(const Group& group, const std::vector<Call>& calls) {
    Part& own = group.meeting->parts[group.rank];
    size_t at = 0;
    if (calls.size() > CALLS_MAX) fail("NCCL: %zu calls in a group", calls.size());
    for (size_t i = 0; i < calls.size(); i++) {
        Call call = calls[i];
        bool is_given = call.kind == Kind::GIVE ? call.other == group.rank : call.kind != Kind::RECEIVE;
        call.offset = at;
        own.calls[i] = call;
        if (!is_given) continue;
        if (at + call.bytes > PART_BYTES) fail("NCCL: too much in a group");
        require_on_gpu(call.from, call.bytes, "NCCL: what is given");
        std::memcpy(own.data + at, call.from, call.bytes);
        at += call.bytes;
    }
    own.count = calls.size();
}

// The other end's call that belongs to a call: its `number`th of this kind that names this process.
const Call& counterpart(const Part& part, Kind kind, int named, size_t number, size_t bytes) {
    for (size_t i = 0; i < part.count; i++) {
        const Call& call = part.calls[i];
        if (call.kind != kind || call.other != named || number--) continue;
        if (call.bytes != bytes) fail("NCCL: %zu bytes meet %zu", call.bytes, bytes);
        return call;
    }
    fail("NCCL: a call has no counterpart");
}

void take(const Group& group, const std::vector<Call>& calls) {
    size_t added = 0;
    std::vector<size_t> given(size_t(group.size)), received(size_t(group.size));
    for (const Call& call : calls) {
        if (call.kind != Kind::SEND) require_on_gpu(call.to, call.bytes, "NCCL: what is taken");
        if (call.kind == Kind::ADD) {
            std::vector<float> sums(call.bytes / 4);
            for (int rank = 0; rank < group.size; rank++) {
                const Part& part = group.meeting->parts[rank];
                const Call& theirs = counterpart(part, Kind::ADD, 0, added, call.bytes);
                auto* values = reinterpret_cast<const float*>(part.data + theirs.offset);
                for (size_t i = 0; i < sums.size(); i++) sums[i] += values[i];
            }
            std::memcpy(call.to, sums.data(), call.bytes);
            added++;
        } else if (call.kind == Kind::GIVE) {
            const Part& part = group.meeting->parts[call.other];
            const Call& theirs = counterpart(part, Kind::GIVE, call.other, given[size_t(call.other)]++, call.bytes);
            std::memcpy(call.to, part.data + theirs.offset, call.bytes);
        } else if (call.kind == Kind::RECEIVE) {
            const Part& part = group.meeting->parts[call.other];
            const Call& theirs = counterpart(part, Kind::SEND, group.rank, received[size_t(call.other)]++, call.bytes);
            std::memcpy(call.to, part.data + theirs.offset, call.bytes);
        }
    }
}

int queue_pending() {
    Group* group = pending_group;
    uint64_t number = ++group->queued;
    auto lock = emulated::locked();
    emulated::queue(emulated::stream_of(pending_stream), [=, calls = std::move(pending)] {
        Part& own = group->meeting->parts[group->rank];
        if (own.given.load() < number) {
            if (!all_have(*group, &Part::taken, number - 1)) return false;
            give(*group, calls);
            own.given.store(number);
        }
        if (!all_have(*group, &Part::given, number)) return false;
        take(*group, calls);
        own.taken.store(number);
        return true;
    });
    pending.clear();
    return 0;
}

int add_call(Group* group, void* stream, Call call) {
    if (depth && !pending.empty() && (group != pending_group || stream != pending_stream)) fail("NCCL: a mixed group");
    pending_group = group;
    pending_stream = stream;
    pending.push_back(call);
    return depth ? 0 : queue_pending();
}

size_t bytes_of(size_t count, int type) {
    if (type != F32 && type != UINT8) fail("NCCL: values of type %d", type);
    return type == F32 ? count * 4 : count;
}

}  // namespace

#define FUNCTION extern "C" __attribute__((visibility("default"))) int

FUNCTION ncclGetUniqueId(Id* id) {
    static std::atomic<int> made{0};
    const char* agreed = std::getenv("NCCL_COMM_ID");
    std::memset(id, 0, sizeof(*id));
    int length = agreed ? std::snprintf(id->text, sizeof(id->text), "/emulated-nccl-%zx-%d",
                                        std::hash<std::string>()(agreed), int(getppid()))
                        : std::snprintf(id->text, sizeof(id->text), "/emulated-nccl-%d-%d", int(getpid()), made++);
    return length > 0 ? 0 : 3;
}
FUNCTION ncclCommInitRank(Group** group, int size, Id id, int rank) {
    if (size > PROCESSES_MAX || rank >= size) return 4;
    int file = shm_open(id.text, O_CREAT | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, sizeof(Meeting))) return 2;
    void* mapped = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return 2;
    auto* meeting = static_cast<Meeting*>(mapped);
    meeting->joined++;
    while (meeting->joined.load() < size) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    shm_unlink(id.text);
    *group = new Group{meeting, rank, size};
    return 0;
}
FUNCTION ncclCommGetAsyncError(Group*, int* state) { return *state = 0, 0; }
FUNCTION ncclGroupStart() { return depth++, 0; }
FUNCTION ncclGroupEnd() { return --depth || pending.empty() ? 0 : queue_pending(); }
FUNCTION ncclAllReduce(const void* from, void* to, size_t count, int type, int op, Group* group, void* stream) {
    if (type != F32 || op != SUM) fail("NCCL: only f32 is added up");
    return add_call(group, stream, {Kind::ADD, 0, bytes_of(count, type), 0, from, to});
}
FUNCTION ncclBroadcast(const void* from, void* to, size_t count, int type, int root, Group* group, void* stream) {
    return add_call(group, stream, {Kind::GIVE, root, bytes_of(count, type), 0, from, to});
}
FUNCTION ncclSend(const void* from, size_t count, int type, int other, Group* group, void* stream) {
    return add_call(group, stream, {Kind::SEND, other, bytes_of(count, type), 0, from, nullptr});
}
FUNCTION ncclRecv(void* to, size_t count, int type, int other, Group* group, void* stream) {
    return add_call(group, stream, {Kind::RECEIVE, other, bytes_of(count, type), 0, nullptr, to});
}
