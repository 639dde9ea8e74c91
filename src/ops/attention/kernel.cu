// Attention over packed rows; see mod.rs for the formulas.
//
// A block takes a tile of 64 rows of one segment (blockIdx.x, see tiles.rs) and one head (blockIdx.y) and
// goes through the rows of the other side of the segment that it sees; sums stay in registers, no score is
// ever in global memory, and no two blocks write the same element.
//
//   forward           a tile of queries, all keys and values    o, log-sum-exp
//   backward_queries  a tile of queries, all keys and values    dq, and delta = rowsum(do o) for the next
//   backward_keys     a tile of keys, all queries               dk, dv
//   backward_short    a segment of at most 128 rows             dq, dk, dv: instead of these two
//
// Half types with a head size that the tensor cores like are in `tensor_forward.cuh` and
// `tensor_backward.cuh` (4 warps of 16 rows each, rows of the other side streamed through shared memory); f32
// and every other head size in `plain.cuh`.
#include "common.cuh"
#include "mma.cuh"

#include "arguments.cuh"
#include "plain.cuh"
#include "tensor.cuh"
#include "tensor_forward.cuh"
#include "tensor_backward.cuh"
#include "tensor_short.cuh"

KERNELS(attention_forward, Args, 256, plain_forward)
KERNELS(attention_backward_queries, Args, 256, plain_backward_queries)
KERNELS(attention_backward_keys, Args, 256, plain_backward_keys)

#define TENSOR_KERNELS(K)                                                                        \
    KERNEL_NAMED(attention_forward_##K##_bf16, Args, 128, tensor_forward<bf16, K>)                   \
    KERNEL_NAMED(attention_forward_##K##_f16, Args, 128, tensor_forward<f16, K>)                     \
    KERNEL_NAMED(attention_backward_queries_##K##_bf16, Args, 128, tensor_backward_queries<bf16, K>) \
    KERNEL_NAMED(attention_backward_queries_##K##_f16, Args, 128, tensor_backward_queries<f16, K>)   \
    KERNEL_NAMED(attention_backward_keys_##K##_bf16, Args, 128, tensor_backward_keys<bf16, K>)       \
    KERNEL_NAMED(attention_backward_keys_##K##_f16, Args, 128, tensor_backward_keys<f16, K>)
TENSOR_KERNELS(32)
TENSOR_KERNELS(64)
TENSOR_KERNELS(80)
TENSOR_KERNELS(96)
TENSOR_KERNELS(128)

// Two blocks on a multiprocessor: their registers, and 2 x 47 KiB of shared memory.
#define SHORT_KERNELS(K)                                                                                       \
    KERNEL_BESIDE(attention_backward_short_##K##_bf16, Args, SHORT_THREADS, 2, tensor_backward_short<bf16, K>) \
    KERNEL_BESIDE(attention_backward_short_##K##_f16, Args, SHORT_THREADS, 2, tensor_backward_short<f16, K>)
SHORT_KERNELS(32)
SHORT_KERNELS(64)
