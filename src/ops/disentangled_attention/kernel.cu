// Disentangled attention over packed rows; see mod.rs for the formulas.
//
// The kernels are those of attention (`../attention/kernel.cu`), to whose scores `positions.cuh` adds what products
// before them have found that queries and keys say of each row of the tables, and whose gradients of scores it adds up by
// these rows for the products behind them. No block writes what another one does, and every sum has one order.
//
// On tensor cores, heads of 32 and 64 columns; all others, and f32, in the plain form. Shared memory of a block, of
// the 48 KiB that every generation gives without being asked: plain 34,560 + 1,536 bytes; on tensor cores 36,864 (heads
// of 64) + 5,888 for the squares of four warps, + 1,024 for the rows of queries in `backward_keys`: 43,776. So T4 (64 KiB
// on a multiprocessor) has one block there, A100 (164) three, H100 and H200 (228) five. Registers of heads of 64, by
// ptxas for sm_80 and sm_90: forward 166 and 162, backward_queries 152 and 148, backward_keys 168 and 165, nothing
// spilled: three blocks of 128 threads. The plain kernels have 128 on sm_90, of which backward_queries spills 112 bytes.
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
