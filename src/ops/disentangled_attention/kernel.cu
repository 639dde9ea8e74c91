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
#include "positions.cuh"
#include "../attention/tensor_forward.cuh"
#include "../attention/tensor_backward.cuh"

KERNELS(disentangled_attention_forward, RelativeArgs, 256, plain_forward)
KERNELS(disentangled_attention_backward_queries, RelativeArgs, 256, plain_backward_queries)
KERNELS(disentangled_attention_backward_keys, RelativeArgs, 256, plain_backward_keys)

#define RELATIVE_TENSOR_KERNELS(K)                                                                                            \
    KERNEL_NAMED(disentangled_attention_forward_##K##_bf16, RelativeArgs, 128, tensor_forward<bf16, K>)                       \
    KERNEL_NAMED(disentangled_attention_forward_##K##_f16, RelativeArgs, 128, tensor_forward<f16, K>)                         \
    KERNEL_NAMED(disentangled_attention_backward_queries_##K##_bf16, RelativeArgs, 128, tensor_backward_queries<bf16, K>)     \
    KERNEL_NAMED(disentangled_attention_backward_queries_##K##_f16, RelativeArgs, 128, tensor_backward_queries<f16, K>)       \
    KERNEL_NAMED(disentangled_attention_backward_keys_##K##_bf16, RelativeArgs, 128, tensor_backward_keys<bf16, K>)           \
    KERNEL_NAMED(disentangled_attention_backward_keys_##K##_f16, RelativeArgs, 128, tensor_backward_keys<f16, K>)
RELATIVE_TENSOR_KERNELS(32)
RELATIVE_TENSOR_KERNELS(64)
