// Attention over packed rows; see mod.rs for the formulas.
//
// A block processes a tile of 64 rows of one segment (blockIdx.x, see tiles.rs) and one head (blockIdx.y). It
// iterates over the rows of the other side (keys for queries, queries for keys) that the tile sees. Sums stay
// in registers, no score is ever in global memory, and no two blocks write the same element.
//
//   forward           a tile of queries, all keys and values    o, log-sum-exp
//   backward_queries  a tile of queries, all keys and values    dq, and delta = rowsum(do o) for the next
//   backward_keys     a tile of keys, all queries               dk, dv
//   backward_short    a segment of at most 128 rows             dq, dk, dv: instead of the previous two
//
// Half types with a head size that suits the tensor cores are in `tensor_forward.cuh` and
// `tensor_backward.cuh` (4 warps of 16 rows each, rows of the other side streamed through shared memory),
// with 128 queries per block in `tensor_wide.cuh`, their dropout in `tensor_dropout.cuh`; f32 and every other
// head size are in `plain.cuh`. `earlier/` (folder, switch `MLMTRAIN_ATTENTION` and tests) will be removed
// once times have been compared on a GPU.
#include "common.cuh"
#include "mma.cuh"

#include "arguments.cuh"
#include "plain.cuh"
#include "tensor.cuh"
#include "tensor_dropout.cuh"
#include "tensor_forward.cuh"
#include "tensor_backward.cuh"
#include "tensor_wide.cuh"
#include "tensor_short.cuh"
#include "earlier/forward.cuh"
#include "earlier/backward.cuh"
#include "earlier/short.cuh"
#include "tensor_kernels.cuh"

KERNELS(attention_forward, Args, 256, plain_forward)
KERNELS(attention_backward_queries, Args, 256, plain_backward_queries)
KERNELS(attention_backward_keys, Args, 256, plain_backward_keys)

TENSOR_KERNELS(attention, Args, 32, 5)
TENSOR_KERNELS(attention, Args, 64, 4)
TENSOR_KERNELS(attention, Args, 80, 3)
TENSOR_KERNELS(attention, Args, 96, 3)
TENSOR_KERNELS(attention, Args, 128, 3)
WIDE_KERNELS(attention, Args, 32)
WIDE_KERNELS(attention, Args, 64)
SHORT_KERNELS(attention, Args, 32)
SHORT_KERNELS(attention, Args, 64)
EARLIER_KERNELS(attention, Args, 64)
EARLIER_SHORT_KERNELS(attention, Args, 64)
#ifdef KERNELS_ON_HOST
EARLIER_KERNELS(attention, Args, 32)
EARLIER_KERNELS(attention, Args, 80)
EARLIER_KERNELS(attention, Args, 96)
EARLIER_KERNELS(attention, Args, 128)
EARLIER_SHORT_KERNELS(attention, Args, 32)
#endif
