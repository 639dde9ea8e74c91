// Bias and GELU; see mod.rs for the formulas, activation.cuh for the assignment of values to threads.
#include "activation.cuh"

#include "gelu.cuh"

template <typename T>
__device__ void forward(const ActivationArgs& a) {
    activate<T, Gelu>(a);
}
KERNELS(gelu_forward, ActivationArgs, 256, forward)

template <typename T>
__device__ void backward(const ActivationArgs& a) {
    activate_backward<T, Gelu>(a);
}
KERNELS(gelu_backward, ActivationArgs, 256, backward)

template <typename T>
__device__ void tanh_forward(const ActivationArgs& a) {
    activate<T, GeluTanh>(a);
}
KERNELS(gelu_tanh_forward, ActivationArgs, 256, tanh_forward)

template <typename T>
__device__ void tanh_backward(const ActivationArgs& a) {
    activate_backward<T, GeluTanh>(a);
}
KERNELS(gelu_tanh_backward, ActivationArgs, 256, tanh_backward)
