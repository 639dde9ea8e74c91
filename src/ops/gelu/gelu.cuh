// GELU of one value, for the ops that compute it; see mod.rs for the formulas.
//
// Each kernel.cu includes it once (and, as C++, into its own namespace), so there is no `#pragma once`.

struct Gelu {
    static __device__ __forceinline__ float cdf(float u) { return 0.5f * (1.0f + erff(u * 0.70710678118654752f)); }
    static __device__ __forceinline__ float density(float u) { return 0.3989422804014327f * expf(-0.5f * u * u); }
    static __device__ __forceinline__ float forward(float u) { return u * cdf(u); }
    static __device__ __forceinline__ float slope(float x, float bias) {
        float u = x + bias;
        return fmaf(u, density(u), cdf(u));
    }
};
