// Disentangled attention over packed rows; see mod.rs for the formulas.
//
// The kernels are those of attention (`../attention/kernel.cu`), to whose scores `positions.cuh` adds what products
// before them have found that queries and keys say of each row of the tables, and whose gradients of scores it adds up by
// these rows for the products behind them. No block writes what another one does, and every sum has one order.
//
// On tensor cores, heads of 32 and 64 columns; all others, and f32, in the plain form. Shared memory of a block, of
// the 48 KiB that every generation gives without being asked: plain 34,560 + 1,536 bytes; on tensor cores 36,864 (heads
// of 64) + 5,888 for the squares of four warps, backward + 1,024 for decisions of dropout, `backward_keys` + 1,024 for the
// rows of queries: 44,800. So T4 (64 KiB on a multiprocessor) has one block there, A100 (164) three, H100 and H200 (228)
// five. Registers of heads of 64, by ptxas for sm_90, without and with dropout: forward 167 and 159, backward_queries 128
// and 155, backward_keys 160 and 159, nothing spilled: three blocks of 128 threads. The plain kernels have 128 there, of
// which backward_queries spills 112 bytes.
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
