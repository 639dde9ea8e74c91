// Biased attention over packed rows; see mod.rs for the formulas.
//
// The kernels are those of attention (`../attention/kernel.cu`), to whose scores `bias.cuh` adds what the table says of
// their distances, and whose gradients of scores it adds up by rows of the table, in the kernel of the queries. Each block
// leaves sums of its own, which `add_partials` of the GPU's common kernels adds up in the order of the tiles: no block
// writes what another one does, and every sum has one order.
//
// On tensor cores, heads of 32 and 64 columns; all others, and f32, in the plain form. Shared memory of a block, of
// the 48 KiB that every generation gives without being asked: plain 34,560 + 1,664 bytes; on tensor cores 36,864 (heads
// of 64) + 4,864 for four warps, backward + 1,024 for decisions of dropout, `backward_keys` + 1,024 for the rows of
// queries: 43,776. Registers of heads of 64, by ptxas for sm_90, without and with dropout: forward 150 and 160,
// backward_queries 127 and 127, backward_keys 166 and 166, nothing spilled. The plain kernels have up to 175, and spill
// nothing either.
#include "common.cuh"
#include "mma.cuh"

#include "../attention/arguments.cuh"
#include "../attention/plain.cuh"
#include "../attention/tensor.cuh"
#include "../attention/tensor_dropout.cuh"
#include "bias.cuh"
#include "../attention/tensor_forward.cuh"
#include "../attention/tensor_backward.cuh"
#include "../attention/earlier/forward.cuh"
#include "../attention/earlier/backward.cuh"
#include "../attention/tensor_kernels.cuh"

KERNELS(biased_attention_forward, BiasedArgs, 256, plain_forward)
KERNELS(biased_attention_backward_queries, BiasedArgs, 256, plain_backward_queries)
KERNELS(biased_attention_backward_keys, BiasedArgs, 256, plain_backward_keys)

TENSOR_KERNELS(biased_attention, BiasedArgs, 32, 4)
TENSOR_KERNELS(biased_attention, BiasedArgs, 64, 3)
EARLIER_KERNELS(biased_attention, BiasedArgs, 64)
#ifdef KERNELS_ON_HOST
EARLIER_KERNELS(biased_attention, BiasedArgs, 32)
#endif
