// C interface through which tests launch kernels on the CPU. This compilation unit is not instrumented for
// race detection.
#include "host.hpp"

#include <map>
#include <string>

#include "races.hpp"

namespace host {
namespace {

struct Kernel {
    Run run;
    size_t args_bytes;
};

std::map<std::string, Kernel>& kernels() {
    static std::map<std::string, Kernel> all;
    return all;
}

thread_local std::string race;

}  // namespace

Registered::Registered(const char* name, Run run, size_t args_bytes) { kernels()[name] = {run, args_bytes}; }

}  // namespace host

// Defined in the kernels' compilation unit: without a call to it, the linker would leave that unit out.
extern "C" void mlmtrain_kernels_are_linked();

// Launches a kernel. Returns 0 on success, 1 if there is no such kernel, 2 if its arguments have another
// size, 3 if a race was found.
extern "C" int mlmtrain_host_launch(const char* name, const void* args, size_t args_bytes, const unsigned* blocks,
                                    unsigned threads, unsigned shared_bytes) {
    mlmtrain_kernels_are_linked();
    auto found = host::kernels().find(name);
    if (found == host::kernels().end()) return 1;
    if (found->second.args_bytes != args_bytes) return 2;
    host::watch(name, args, args_bytes, shared_bytes);
    found->second.run(args, blocks, threads, shared_bytes);
    host::race = host::end_of_watch();
    return host::race.empty() ? 0 : 3;
}

// Returns the size of a kernel's arguments in bytes; 0 if there is no such kernel.
extern "C" size_t mlmtrain_host_args_bytes(const char* name) {
    mlmtrain_kernels_are_linked();
    auto found = host::kernels().find(name);
    return found == host::kernels().end() ? 0 : found->second.args_bytes;
}

// Returns a description of the race in this thread's last launch; valid until its next launch.
extern "C" const char* mlmtrain_host_race() { return host::race.c_str(); }

// Sets the scheduling order of this thread's launches (0 lowest index first, 1 highest index first, 2 random
// from the seed), and whether races are detected.
extern "C" void mlmtrain_host_order(unsigned order, uint64_t seed, bool watched) {
    host::set_order(static_cast<host::Order>(order), seed);
    host::set_watched(watched);
}
