// All kernels in one unit, which is instrumented: see `races.hpp`.
//
// `all_kernels.inc` is written by the build script: each op's `kernel.cu`, in a namespace of its own.
#define KERNELS_ON_HOST
#include "common.cuh"
#include "activation.cuh"
#include "mma.cuh"
#include "segments.cuh"

#include "all_kernels.inc"

#include "planted.cuh"

extern "C" void mlmtrain_kernels_are_linked() {}
