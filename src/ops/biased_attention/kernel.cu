// Biased attention over packed rows; see mod.rs for the formulas.
//
// The kernels are those of attention (`../attention/kernel.cu`). `bias.cuh` adds the biases of the table to
// their scores and, in the kernel for the queries, sums the gradients of scores for each row of the table.
// Each block writes partial sums, which `add_partials` of the common kernels adds in the order of the tiles:
// no two blocks write to the same address, and the order of every sum is fixed.
//
// Heads of 32 and 64 columns use tensor cores; all others, and f32, use the plain kernels. Shared memory of a
// block, of the 48 KiB that every GPU generation provides by default: plain 34,560 + 1,664 bytes; on tensor
// cores 36,864 (heads of 64) + 4,864 for four warps, in backward + 1,024 for decisions of dropout, in
// `backward_keys` + 1,024 for the rows of queries: 43,776. Registers for heads of 64, by ptxas for sm_90,
// without and with dropout: forward 150 and 160, backward_queries 127 and 127, backward_keys 166 and 166,
// without spills. The plain kernels use up to 175, also without spills.
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
