// Bias and rectified linear unit; see mod.rs for the formulas, activation.cuh for the assignment of values to
// threads.
#include "activation.cuh"

struct Relu {
    // NaN stays NaN.
    static __device__ __forceinline__ float forward(float u) { return u <= 0.0f ? 0.0f : u; }
    // Takes the output `y`, which already includes the bias.
    static __device__ __forceinline__ float slope(float y, float) { return y > 0.0f ? 1.0f : 0.0f; }
};

template <typename T>
__device__ void forward(const ActivationArgs& a) {
    activate<T, Relu>(a);
}
KERNELS(relu_forward, ActivationArgs, 256, forward)

template <typename T>
__device__ void backward(const ActivationArgs& a) {
    activate_backward<T, Relu>(a);
}
KERNELS(relu_backward, ActivationArgs, 256, backward)
