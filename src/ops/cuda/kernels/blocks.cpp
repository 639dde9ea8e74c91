// Fibers and their scheduling; see `blocks.hpp`. This compilation unit is not instrumented for race
// detection.
#include "blocks.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include "races.hpp"

// Saves the registers that a call must preserve, and continues on another stack.
extern "C" void mlmtrain_switch_stack(void** save, void* load);
asm(R"(
.text
.globl mlmtrain_switch_stack
.type mlmtrain_switch_stack, @function
mlmtrain_switch_stack:
  push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp
  ret
)");

namespace host {
namespace {

constexpr size_t STACK_BYTES = 256 << 10;

struct Copy {
    void* to;
    const void* from;
    size_t bytes;
    bool valid;
};

struct Fiber {
    void* stack_pointer = nullptr;
    State state = State::READY;
    unsigned parity = 0;
    std::vector<Copy> copies;
};

struct Warp {
    unsigned ready, done;        // a bit for each lane
    unsigned at[5];              // lanes in each state, as bits
    unsigned epoch;              // barriers so far
    alignas(16) Slots slots[2];
};

struct Block {
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    std::vector<std::vector<unsigned char>> stacks;
    std::vector<unsigned char> shared;
    const std::function<void()>* body = nullptr;
    void* scheduler = nullptr;
    unsigned current = 0;
};

struct Turns {
    Order order = Order::FORWARDS;
    uint64_t state = 0;
    unsigned patience = 1;  // expected number of consecutive turns of a warp
    unsigned warp = 0;

    // SplitMix64.
    uint64_t draw() {
        uint64_t z = state += 0x9E3779B97F4A7C15;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
        z = (z ^ z >> 27) * 0x94D049BB133111EB;
        return z ^ z >> 31;
    }
};

thread_local Turns turns;

Block& this_block() { return of_this_thread<Block>(); }

void enter() {
    (*this_block().body)();
    finish_copies();
    wait(State::DONE);
}

void prepare(Fiber& fiber, std::vector<unsigned char>& stack, unsigned thread) {
    stack.resize(STACK_BYTES);
    // Each stack begins a few cache lines lower than the previous one: at equal distances, all stacks would
    // compete for the same lines of the cache.
    auto top = (reinterpret_cast<uintptr_t>(stack.data()) + STACK_BYTES - thread * 576 % 4096) & ~uintptr_t(63);
    auto* words = reinterpret_cast<uintptr_t*>(top);
    // Six registers, then the address that the first switch returns to, aligned as after a call.
    words[-2] = reinterpret_cast<uintptr_t>(&enter);
    fiber = Fiber();
    fiber.stack_pointer = words - 8;
}

void go_on(Warp& warp, State from) {
    Block& block = this_block();
    unsigned lanes = warp.at[int(from)];
    warp.at[int(from)] = 0;
    warp.ready |= lanes;
    for (; lanes; lanes &= lanes - 1) {
        block.fibers[(&warp - block.warps.data()) * WARP + __builtin_ctz(lanes)].state = State::READY;
    }
}

// Resumes the lanes of a warp if all of them wait in this state, and likewise all threads of the block.
void release(Warp& warp, State state) {
    if (state != State::AT_BLOCK && state != State::DONE) {
        if ((warp.at[int(state)] | warp.done) != ~0u) return;
        if (state == State::AT_WARP) warp.epoch++;
        return go_on(warp, state);
    }
    for (State other : {State::AT_SHUFFLE, State::AT_WARP}) {
        if (state == State::DONE && warp.at[int(other)]) release(warp, other);
    }
    Block& block = this_block();
    for (const Warp& each : block.warps) {
        if ((each.at[int(State::AT_BLOCK)] | each.done) != ~0u) return;
    }
    now.block_epoch++;
    for (Warp& each : block.warps) go_on(each, State::AT_BLOCK);
}

// Returns a warp that can run, or null.
Warp* next_warp() {
    Block& block = this_block();
    unsigned count = unsigned(block.warps.size());
    bool stays = turns.order != Order::DRAWN || turns.draw() % turns.patience != 0;
    if (turns.order != Order::DRAWN) {
        turns.warp = turns.order == Order::FORWARDS ? 0 : count - 1;
    } else if (!stays || turns.warp >= count || !block.warps[turns.warp].ready) {
        turns.warp = unsigned(turns.draw() % count);
    }
    for (unsigned n = 0; n < count; n++) {
        unsigned step = turns.order == Order::BACKWARDS ? count - n : n;
        Warp& warp = block.warps[(turns.warp + step) % count];
        if (!warp.ready) continue;
        if (turns.order == Order::DRAWN) turns.warp = unsigned(&warp - block.warps.data());
        return &warp;
    }
    return nullptr;
}

unsigned next_lane(unsigned ready) {
    if (turns.order == Order::FORWARDS) return unsigned(__builtin_ctz(ready));
    if (turns.order == Order::BACKWARDS) return 31 - unsigned(__builtin_clz(ready));
    unsigned first = unsigned(turns.draw() % WARP);
    unsigned behind = ready >> first << first;
    return unsigned(__builtin_ctz(behind ? behind : ready));
}

void take_turn(Warp& warp) {
    Block& block = this_block();
    unsigned lane = next_lane(warp.ready), thread = unsigned(&warp - block.warps.data()) * WARP + lane;
    Fiber& fiber = block.fibers[thread];
    block.current = now.thread = thread;
    now.warp_epoch = warp.epoch;
    now.stack = reinterpret_cast<uintptr_t>(block.stacks[thread].data());
    threadIdx = {thread, 0, 0};
    now.watching = now.armed;
    // A copy that was started may write at any time until it is waited for.
    for (const Copy& copy : fiber.copies) touch(copy.to, copy.bytes, true);
    mlmtrain_switch_stack(&block.scheduler, fiber.stack_pointer);
    now.watching = false;
    warp.ready &= ~(1u << lane);
    (fiber.state == State::DONE ? warp.done : warp.at[int(fiber.state)]) |= 1u << lane;
    release(warp, fiber.state);
}

void run_block(unsigned threads) {
    Block& block = this_block();
    block.fibers.resize(threads);
    block.stacks.resize(std::max<size_t>(block.stacks.size(), threads));
    block.warps.assign(threads / WARP, Warp());
    for (Warp& warp : block.warps) warp.ready = ~0u;
    std::fill(block.shared.begin(), block.shared.end(), 0xff);
    for (unsigned i = 0; i < threads; i++) prepare(block.fibers[i], block.stacks[i], i);
    now.exchange = reinterpret_cast<uintptr_t>(block.warps.data());
    now.exchange_bytes = block.warps.size() * sizeof(Warp);
    now.block_run++;
    now.block_epoch = 0;
    now.block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    // Ranges from switching the warp after every turn to letting a warp run as far as it can.
    turns.patience = 1u << turns.draw() % 10;
    while (Warp* warp = next_warp()) take_turn(*warp);
    for (const Warp& warp : block.warps) {
        if (warp.done != ~0u) fail("threads wait for each other at different barriers");
    }
}

}  // namespace

void set_order(Order order, uint64_t seed) {
    turns = Turns();
    turns.order = order;
    turns.state = seed;
}

void wait(State state) {
    Block& block = this_block();
    Fiber& fiber = block.fibers[block.current];
    fiber.state = state;
    mlmtrain_switch_stack(&fiber.stack_pointer, block.scheduler);
}

Slots& next_slots() {
    Block& block = this_block();
    Fiber& fiber = block.fibers[block.current];
    fiber.parity ^= 1;
    return block.warps[block.current / WARP].slots[fiber.parity];
}

void add_products(float (&c)[4], const Slots& of_each_lane, unsigned lane) {
    auto of = [&](unsigned other) { return reinterpret_cast<const Operands*>(of_each_lane[other]); };
    float rows[2][16], columns[2][16];
    for (unsigned k = 0; k < 16; k++) {
        unsigned holder = k % 8 / 2, place = k / 8 * 2 + k % 2;
        for (unsigned i = 0; i < 2; i++) {
            rows[i][k] = of(lane / 4 * 4 + holder)->a[i][place];
            columns[i][k] = of((lane % 4 * 2 + i) * 4 + holder)->b[place];
        }
    }
    for (unsigned k = 0; k < 16; k++) {
        for (unsigned i = 0; i < 4; i++) c[i] += rows[i / 2][k] * columns[i % 2][k];
    }
}

void start_copy(void* to, const void* from, size_t bytes, bool valid) {
    if (valid) touch(from, bytes, false);
    touch(to, bytes, true);
    Block& block = this_block();
    block.fibers[block.current].copies.push_back({to, from, bytes, valid});
}

void finish_copies() {
    Block& block = this_block();
    auto& copies = block.fibers[block.current].copies;
    for (const Copy& copy : copies) {
        if (copy.valid) {
            std::memcpy(copy.to, copy.from, copy.bytes);
        } else {
            std::memset(copy.to, 0, copy.bytes);
        }
    }
    copies.clear();
}

void* shared_memory() { return reinterpret_cast<void*>(now.shared); }

void run(const std::function<void()>& body, const unsigned* blocks, unsigned threads, unsigned shared_bytes) {
    Block& block = this_block();
    if (threads % WARP) fail("threads of a block must be whole warps");
    block.body = &body;
    block.shared.assign(shared_bytes + 64, 0);
    now.shared = (reinterpret_cast<uintptr_t>(block.shared.data()) + 63) & ~uintptr_t(63);
    now.shared_bytes = shared_bytes;
    now.stack_bytes = STACK_BYTES;
    blockDim = {threads, 1, 1};
    gridDim = {blocks[0], blocks[1], blocks[2]};
    std::vector<unsigned> order(size_t(blocks[0]) * blocks[1] * blocks[2]);
    std::iota(order.begin(), order.end(), 0u);
    if (turns.order == Order::BACKWARDS) std::reverse(order.begin(), order.end());
    for (size_t left = order.size(); turns.order == Order::DRAWN && left > 1; left--) {
        std::swap(order[left - 1], order[turns.draw() % left]);
    }
    for (unsigned at : order) {
        blockIdx = {at % blocks[0], at / blocks[0] % blocks[1], at / blocks[0] / blocks[1]};
        run_block(threads);
    }
}

void fail(const char* what) {
    std::fprintf(stderr, "kernel on the CPU: %s\n", what);
    std::abort();
}

}  // namespace host
