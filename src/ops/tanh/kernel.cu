// Bias and hyperbolic tangent; see mod.rs for the formulas, activation.cuh for the assignment of values to
// threads.
#include "activation.cuh"

struct Tanh {
    static __device__ __forceinline__ float forward(float u) { return tanhf(u); }
    // Takes the output `y`, which already includes the bias.
    static __device__ __forceinline__ float slope(float y, float) { return 1.0f - y * y; }
};

template <typename T>
__device__ void forward(const ActivationArgs& a) {
    activate<T, Tanh>(a);
}
KERNELS(tanh_forward, ActivationArgs, 256, forward)

template <typename T>
__device__ void backward(const ActivationArgs& a) {
    activate_backward<T, Tanh>(a);
}
KERNELS(tanh_backward, ActivationArgs, 256, backward)
