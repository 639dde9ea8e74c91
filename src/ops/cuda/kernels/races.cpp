// Race detector of `races.hpp`. This compilation unit is not instrumented itself.
#include "races.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

#include "blocks.hpp"

namespace host {
namespace {

constexpr unsigned WORD = 4;
constexpr unsigned PAGE_SHIFT = 12;
constexpr unsigned NOBODY = ~0u;

// Accesses to a byte or word so far. Only the last write is kept: an access that is not ordered after an
// earlier write is not ordered after the last one either, or the last write was a race itself. Blocks run one
// after the other, so one reader of another block is enough.
struct Cell {
    struct {
        unsigned run, block, block_epoch, warp_epoch, thread;
    } write;
    struct {
        unsigned run, block, other_block;
        unsigned block_epoch, warp, other_warps_thread;  // readers since the block's last barrier
        unsigned warp_epoch, lanes;                      // readers in `warp` since its last barrier
    } read;
};

// Accesses to a word of four bytes: recorded for the whole word, until two bytes or one are accessed by
// themselves; from then on for each half or each byte.
struct Word {
    Cell whole;
    unsigned split_run, part_bytes;
    std::unique_ptr<Cell[]> parts;  // of each byte; of each half, in the place of its first byte
};

struct Page {
    Word words[(1 << PAGE_SHIFT) / WORD];
};

// Shadow memory. Entries of earlier launches and blocks are recognised by their number of the run, so nothing
// is ever cleared.
struct Shadow {
    std::vector<Word> shared;
    std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;
    struct {
        uintptr_t number;
        Page* page;
    } found[64] = {};

    const char* kernel = "";
    std::vector<uint64_t> args;
    std::string message;
};

thread_local bool is_watched = true;

Page& page_of(Shadow& shadow, uintptr_t number) {
    auto& found = shadow.found[number % 64];
    if (!found.page || found.number != number) {
        auto& page = shadow.pages[number];
        if (!page) page = std::make_unique<Page>();
        found = {number, page.get()};
    }
    return *found.page;
}

std::string of_block(unsigned block) {
    unsigned x = block % gridDim.x, y = block / gridDim.x % gridDim.y, z = block / gridDim.x / gridDim.y;
    return "(" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
}

// Describes an address: the kernel argument that points to or before it, and the distance in bytes.
std::string in_words(const Shadow& shadow, uintptr_t at) {
    char text[128];
    if (at - now.shared < now.shared_bytes) {
        std::snprintf(text, sizeof text, "byte %zu of shared memory", size_t(at - now.shared));
        return text;
    }
    size_t nearest = shadow.args.size();
    for (size_t i = 0; i < shadow.args.size(); i++) {
        bool behind = shadow.args[i] != 0 && shadow.args[i] <= at;
        if (behind && (nearest == shadow.args.size() || shadow.args[i] > shadow.args[nearest])) nearest = i;
    }
    if (nearest == shadow.args.size()) {
        std::snprintf(text, sizeof text, "global memory at %#zx", size_t(at));
    } else {
        std::snprintf(text, sizeof text, "byte %zu behind the address in bytes %zu to %zu of its arguments",
                      size_t(at - shadow.args[nearest]), nearest * 8, nearest * 8 + 7);
    }
    return text;
}

void report(uintptr_t at, bool writes, unsigned block, unsigned thread, bool wrote) {
    auto& shadow = of_this_thread<Shadow>();
    now.found = true;
    std::string missing = "no __syncthreads() between";
    if (block != now.block) {
        missing = "no order between blocks of a launch";
    } else if (thread / WARP == now.thread / WARP) {
        missing = "two lanes of a warp, no __syncwarp() between (a shuffle does not order memory)";
    }
    std::string other = "block " + of_block(block);
    if (thread != NOBODY) other = "thread " + std::to_string(thread) + " of " + other;
    std::string own = "thread " + std::to_string(now.thread) + " of block " + of_block(now.block);
    shadow.message = "race in `" + std::string(shadow.kernel) + "` on " + in_words(shadow, at) + ": " + other +
                     (wrote ? " wrote, " : " read, ") + own + (writes ? " writes: " : " reads: ") + missing;
}

void after_write(Cell& cell, unsigned run, uintptr_t at, bool writes) {
    const auto& write = cell.write;
    if (write.run != run) return;
    bool is_ordered = write.block == now.block &&
                      (write.thread == now.thread || write.block_epoch != now.block_epoch ||
                       (write.thread / WARP == now.thread / WARP && write.warp_epoch != now.warp_epoch));
    if (!is_ordered) report(at, writes, write.block, write.thread, true);
}

void after_reads(Cell& cell, unsigned run, uintptr_t at) {
    const auto& read = cell.read;
    if (read.run != run) return;
    unsigned warp = now.thread / WARP, lane = now.thread % WARP;
    if (read.block != now.block) {
        report(at, true, read.block, NOBODY, false);
    } else if (read.other_block != NOBODY) {
        report(at, true, read.other_block, NOBODY, false);
    } else if (read.block_epoch != now.block_epoch) {
        return;
    } else if (read.other_warps_thread != NOBODY && read.other_warps_thread / WARP != warp) {
        report(at, true, now.block, read.other_warps_thread, false);
    } else if (read.warp != warp) {
        report(at, true, now.block, read.warp * WARP + unsigned(__builtin_ctz(read.lanes)), false);
    } else if (unsigned others = read.lanes & ~(1u << lane); others && read.warp_epoch == now.warp_epoch) {
        report(at, true, now.block, warp * WARP + unsigned(__builtin_ctz(others)), false);
    }
}

void note_read(Cell& cell, unsigned run) {
    auto& read = cell.read;
    unsigned warp = now.thread / WARP, lane = now.thread % WARP;
    if (read.run != run) {
        read = {run, now.block, NOBODY, now.block_epoch, warp, NOBODY, now.warp_epoch, 1u << lane};
    } else if (read.block != now.block) {
        read = {run, now.block, read.block, now.block_epoch, warp, NOBODY, now.warp_epoch, 1u << lane};
    } else if (read.block_epoch != now.block_epoch) {
        read = {run, now.block, read.other_block, now.block_epoch, warp, NOBODY, now.warp_epoch, 1u << lane};
    } else if (read.warp != warp) {
        read.other_warps_thread = now.thread;
    } else if (read.warp_epoch != now.warp_epoch) {
        read.warp_epoch = now.warp_epoch;
        read.lanes = 1u << lane;
    } else {
        read.lanes |= 1u << lane;
    }
}

void touch_cell(Cell& cell, unsigned run, uintptr_t at, bool writes) {
    const auto& last = cell.write;
    bool is_same = last.run == run && last.thread == now.thread && last.block == now.block;
    // Conflicting accesses of other threads since then were found when they happened.
    if (is_same && writes && last.block_epoch == now.block_epoch && last.warp_epoch == now.warp_epoch) return;
    after_write(cell, run, at, writes);
    if (!writes) return note_read(cell, run);
    if (!now.found) after_reads(cell, run, at);
    cell.write = {run, now.block, now.block_epoch, now.warp_epoch, now.thread};
}

// Records an access to the bytes first..end of the word at `at`.
void touch_word(Word& word, unsigned run, uintptr_t at, unsigned first, unsigned end, bool writes) {
    unsigned size = word.split_run == run ? word.part_bytes : WORD;
    unsigned accessed = (first | end) % WORD == 0 ? WORD : (first | end) % 2 == 0 ? 2 : 1;
    if (accessed < size) {
        if (!word.parts) word.parts = std::make_unique<Cell[]>(WORD);
        for (unsigned i = 0; i < WORD; i++) word.parts[i] = size == WORD ? word.whole : word.parts[i / size * size];
        word.split_run = run;
        word.part_bytes = size = accessed;
    }
    if (size == WORD) return touch_cell(word.whole, run, at, writes);
    for (unsigned i = first; i < end && !now.found; i += size) touch_cell(word.parts[i], run, at + i, writes);
}

}  // namespace

void look_at(const void* pointer, size_t bytes, bool writes) {
    auto first = reinterpret_cast<uintptr_t>(pointer), end = first + bytes;
    if (now.found || first - now.stack < now.stack_bytes) return;
    if (first - now.exchange < now.exchange_bytes) return;
    auto& shadow = of_this_thread<Shadow>();
    bool is_shared = first - now.shared < now.shared_bytes;
    for (uintptr_t at = first / WORD * WORD; at < end && !now.found; at += WORD) {
        auto from = unsigned(at < first ? first - at : 0), to = unsigned(std::min<uintptr_t>(end - at, WORD));
        if (is_shared) {
            touch_word(shadow.shared[(at - now.shared) / WORD], now.block_run, at, from, to, writes);
        } else {
            Page& page = page_of(shadow, at >> PAGE_SHIFT);
            touch_word(page.words[at % (1 << PAGE_SHIFT) / WORD], now.launch, at, from, to, writes);
        }
    }
}

void misaligned(const void* at, size_t bytes) {
    if (!now.watching) fail("an address is not a multiple of the size of its access");
    if (now.found) return;
    now.found = true;
    auto& shadow = of_this_thread<Shadow>();
    shadow.message = "`" + std::string(shadow.kernel) + "`, thread " + std::to_string(now.thread) + " of block " +
                     of_block(now.block) + ": an access of " + std::to_string(bytes) + " bytes on " +
                     in_words(shadow, reinterpret_cast<uintptr_t>(at)) + ", which is not a multiple of them";
}

void watch(const char* kernel, const void* args, size_t args_bytes, size_t shared_bytes) {
    auto& shadow = of_this_thread<Shadow>();
    shadow.kernel = kernel;
    shadow.args.assign(args_bytes / 8, 0);
    std::memcpy(shadow.args.data(), args, shadow.args.size() * 8);
    size_t words = shared_bytes / WORD + 1;
    if (shadow.shared.size() < words) shadow.shared = std::vector<Word>(words);
    now.launch++;
    now.found = false;
    now.armed = is_watched;
}

void set_watched(bool watched) { is_watched = watched; }

std::string end_of_watch() {
    return now.found ? of_this_thread<Shadow>().message : std::string();
}

}  // namespace host

// ---- functions that the compiler's instrumentation calls ----

// The compiler's aligned accesses are checked for an alignment of up to 8 bytes, which is all that it
// requires for 16-byte accesses; `load_whole` and `store_whole` check for 16.
#define ACCESS(bytes)                                                                          \
    extern "C" void __tsan_read##bytes(void* at) {                                             \
        if (host::now.watching) host::aligned(at, bytes < 8 ? bytes : 8);                      \
        host::touch(at, bytes, false);                                                         \
    }                                                                                          \
    extern "C" void __tsan_write##bytes(void* at) {                                            \
        if (host::now.watching) host::aligned(at, bytes < 8 ? bytes : 8);                      \
        host::touch(at, bytes, true);                                                          \
    }                                                                                          \
    extern "C" void __tsan_unaligned_read##bytes(void* at) { host::touch(at, bytes, false); }  \
    extern "C" void __tsan_unaligned_write##bytes(void* at) { host::touch(at, bytes, true); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
extern "C" void __tsan_read_range(void* at, size_t bytes) { host::touch(at, bytes, false); }
extern "C" void __tsan_write_range(void* at, size_t bytes) { host::touch(at, bytes, true); }
extern "C" void __tsan_vptr_update(void**, void*) {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_init() {}
