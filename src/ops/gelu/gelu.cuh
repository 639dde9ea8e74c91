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

struct GeluTanh {
    static constexpr float TWICE_ROOT_TWO_OVER_PI = 1.5957691216057308f;
    // By an exponential: of a hyperbolic tangent near 1 nothing would be left of `1 - P`.
    static __device__ __forceinline__ float tail(float u) {
        return expf(-fabsf(TWICE_ROOT_TWO_OVER_PI * u * fmaf(0.044715f * u, u, 1.0f)));
    }
    static __device__ __forceinline__ float forward(float u) {
        float e = tail(u);
        return u * (u < 0.0f ? e : 1.0f) / (1.0f + e);
    }
    static __device__ __forceinline__ float slope(float x, float bias) {
        float u = x + bias, e = tail(u), larger = 1.0f / (1.0f + e);
        float share = u < 0.0f ? e * larger : larger;
        return fmaf(u, e * larger * larger * TWICE_ROOT_TWO_OVER_PI * fmaf(0.134145f * u, u, 1.0f), share);
    }
};
