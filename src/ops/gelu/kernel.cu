// Bias and GELU; see mod.rs for the formulas, activation.cuh for who computes what.
#include "activation.cuh"

struct Gelu {
    static __device__ __forceinline__ float cdf(float u) { return 0.5f * (1.0f + erff(u * 0.70710678118654752f)); }
    static __device__ __forceinline__ float density(float u) { return 0.3989422804014327f * expf(-0.5f * u * u); }
    static __device__ __forceinline__ float forward(float u) { return u * cdf(u); }
    static __device__ __forceinline__ float slope(float x, float bias) {
        float u = x + bias;
        return fmaf(u, density(u), cdf(u));
    }
};

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
