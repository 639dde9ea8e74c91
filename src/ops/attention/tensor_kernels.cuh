// Names for the tensor-core kernels of one kind of attention: with and without dropout, with 128 queries per
// block (`wide`), and the previous versions (`earlier`), which a switch selects. The registers of forward are
// limited so that BESIDE blocks fit on a multiprocessor at the same time; not on sm_75, whose shared memory
// has room for only one or two.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define FORWARD_BESIDE(BLOCKS) 1
#else
#define FORWARD_BESIDE(BLOCKS) BLOCKS
#endif
#define TENSOR_KERNELS_OF(op, Args, K, T, BESIDE)                                                                \
    KERNEL_BESIDE(op##_forward_##K##_##T, Args, 128, FORWARD_BESIDE(BESIDE), tensor_forward<T, K, false>)        \
    KERNEL_NAMED(op##_backward_queries_##K##_##T, Args, 128, tensor_backward_queries<T, K, false>)               \
    KERNEL_NAMED(op##_backward_keys_##K##_##T, Args, 128, tensor_backward_keys<T, K, false>)                     \
    KERNEL_BESIDE(op##_forward_##K##_dropout_##T, Args, 128, FORWARD_BESIDE(BESIDE), tensor_forward<T, K, true>) \
    KERNEL_NAMED(op##_backward_queries_##K##_dropout_##T, Args, 128, tensor_backward_queries<T, K, true>)        \
    KERNEL_NAMED(op##_backward_keys_##K##_dropout_##T, Args, 128, tensor_backward_keys<T, K, true>)
#define TENSOR_KERNELS(op, Args, K, BESIDE)      \
    TENSOR_KERNELS_OF(op, Args, K, bf16, BESIDE) \
    TENSOR_KERNELS_OF(op, Args, K, f16, BESIDE)

// Three blocks fit on a multiprocessor, with at most 168 registers per thread.
#define WIDE_KERNELS_OF(op, Args, K, T)                                                                                  \
    KERNEL_BESIDE(op##_forward_##K##_wide_##T, Args, 128, 3, wide_forward<T, K, false>)                                  \
    KERNEL_BESIDE(op##_backward_queries_##K##_wide_##T, Args, 128, 3, wide_backward_queries<T, K, false>)                \
    KERNEL_BESIDE(op##_backward_keys_##K##_wide_##T, Args, 128, 3, wide_backward_keys<T, K, false>)                      \
    KERNEL_BESIDE(op##_forward_##K##_wide_dropout_##T, Args, 128, 3, wide_forward<T, K, true>)                           \
    KERNEL_BESIDE(op##_backward_queries_##K##_wide_dropout_##T, Args, 128, 3, wide_backward_queries<T, K, true>)         \
    KERNEL_BESIDE(op##_backward_keys_##K##_wide_dropout_##T, Args, 128, 3, wide_backward_keys<T, K, true>)
#define WIDE_KERNELS(op, Args, K)      \
    WIDE_KERNELS_OF(op, Args, K, bf16) \
    WIDE_KERNELS_OF(op, Args, K, f16)

// Two blocks fit on a multiprocessor, by their registers and by 2 x 48 KiB of shared memory.
#define SHORT_KERNELS_OF(op, Args, K, T)                                                                     \
    KERNEL_BESIDE(op##_backward_short_##K##_##T, Args, SHORT_THREADS, 2, tensor_backward_short<T, K, false>) \
    KERNEL_BESIDE(op##_backward_short_##K##_dropout_##T, Args, SHORT_THREADS, 2, tensor_backward_short<T, K, true>)
#define SHORT_KERNELS(op, Args, K)      \
    SHORT_KERNELS_OF(op, Args, K, bf16) \
    SHORT_KERNELS_OF(op, Args, K, f16)

#define EARLIER_KERNELS_OF(op, Args, K, T)                                                                   \
    KERNEL_NAMED(op##_forward_##K##_earlier_##T, Args, 128, earlier::tensor_forward<T, K>)                   \
    KERNEL_NAMED(op##_backward_queries_##K##_earlier_##T, Args, 128, earlier::tensor_backward_queries<T, K>) \
    KERNEL_NAMED(op##_backward_keys_##K##_earlier_##T, Args, 128, earlier::tensor_backward_keys<T, K>)
#define EARLIER_KERNELS(op, Args, K)      \
    EARLIER_KERNELS_OF(op, Args, K, bf16) \
    EARLIER_KERNELS_OF(op, Args, K, f16)
#define EARLIER_SHORT_KERNELS(op, Args, K)                                                                                 \
    KERNEL_BESIDE(op##_backward_short_##K##_earlier_bf16, Args, SHORT_THREADS, 2, earlier::tensor_backward_short<bf16, K>) \
    KERNEL_BESIDE(op##_backward_short_##K##_earlier_f16, Args, SHORT_THREADS, 2, earlier::tensor_backward_short<f16, K>)
