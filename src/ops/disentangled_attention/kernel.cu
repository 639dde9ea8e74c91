// Disentangled attention over packed rows; see mod.rs for the formulas.
//
// The kernels are those of attention (`../attention/kernel.cu`). `positions.cuh` adds to their scores the
// position scores, which products before them have computed, and sums the gradients of scores for each row of
// the tables, for the products after them. No two blocks write to the same address, and the order of every
// sum is fixed.
//
// Heads of 32 and 64 columns use tensor cores; all others, and f32, use the plain kernels. Shared memory of a
// block, of the 48 KiB that every GPU generation provides by default: plain 34,560 + 1,536 bytes; on tensor
// cores 36,864 (heads of 64) + 5,888 for the squares of four warps, in backward + 1,024 for decisions of
// dropout, in `backward_keys` + 1,024 for the rows of queries: 44,800. So a multiprocessor of T4 (64 KiB) has
// room for one block, of A100 (164) for three, of H100 and H200 (228) for five. Registers for heads of 64, by
// ptxas for sm_90, without and with dropout: forward 167 and 159, backward_queries 128 and 155, backward_keys
// 160 and 159, without spills: three blocks of 128 threads. The plain kernels use 128, and backward_queries
// spills 112 bytes.
#include "common.cuh"
#include "mma.cuh"

#include "../attention/arguments.cuh"
#include "../attention/plain.cuh"
#include "../attention/tensor.cuh"
#include "../attention/tensor_dropout.cuh"
#include "positions.cuh"
#include "../attention/tensor_forward.cuh"
#include "../attention/tensor_backward.cuh"
#include "../attention/earlier/forward.cuh"
#include "../attention/earlier/backward.cuh"
#include "../attention/tensor_kernels.cuh"

KERNELS(disentangled_attention_forward, RelativeArgs, 256, plain_forward)
KERNELS(disentangled_attention_backward_queries, RelativeArgs, 256, plain_backward_queries)
KERNELS(disentangled_attention_backward_keys, RelativeArgs, 256, plain_backward_keys)

TENSOR_KERNELS(disentangled_attention, RelativeArgs, 32, 3)
TENSOR_KERNELS(disentangled_attention, RelativeArgs, 64, 3)
EARLIER_KERNELS(disentangled_attention, RelativeArgs, 64)
#ifdef KERNELS_ON_HOST
EARLIER_KERNELS(disentangled_attention, RelativeArgs, 32)
#endif
