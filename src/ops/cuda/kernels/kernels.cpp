// All kernels in one compilation unit, which is instrumented for race detection: see `races.hpp`.
//
// The build script writes `all_kernels.inc`, which includes each op's `kernel.cu` in a namespace of its own.
#define KERNELS_ON_HOST
#include "common.cuh"
#include "columns.cuh"
#include "mma.cuh"
#include "segments.cuh"

#include "all_kernels.inc"

#include "planted.cuh"

extern "C" void mlmtrain_kernels_are_linked() {}
