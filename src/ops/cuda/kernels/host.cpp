// All kernels in one unit, and the door through which tests start them.
//
// `all_kernels.inc` is written by the build script: each op's `kernel.cu`, in a namespace of its own.
#define KERNELS_ON_HOST
#include "common.cuh"
#include "activation.cuh"
#include "mma.cuh"

#include "all_kernels.inc"

// 0, or what went wrong: 1 there is no such kernel, 2 its arguments have another size.
extern "C" int mlmtrain_host_launch(const char* name, const void* args, size_t args_bytes, const unsigned* blocks, unsigned threads,
                                    unsigned shared_bytes) {
    auto found = host::kernels().find(name);
    if (found == host::kernels().end()) return 1;
    if (found->second.args_bytes != args_bytes) return 2;
    found->second.run(args, blocks, threads, shared_bytes);
    return 0;
}

// Whether the threads of a block take their turns from the last to the first: results must not change.
extern "C" void mlmtrain_host_backwards(bool backwards) { host::backwards = backwards; }
