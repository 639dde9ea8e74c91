// GELU of one value, for the kernels that compute it; see activation.rs for the formulas.
//
// Each kernel.cu includes this file once, in the build as C++ into its own namespace, so there is no
// `#pragma once`.

struct Gelu {
    float cdf;
    float density;

    // Distribution function and density of the standard normal distribution at `u`, both from one
    // exponential: Phi(-|u|) = exp(-u^2 / 2) R(1 / (1 + 0.265 |u|)). The polynomial R, fitted to erfcx for
    // all |u| <= 14, has an error of at most 6.4e-7. With `erff` and `expf`, kernels take longer (H200, 8,192
    // x 4,096 in bf16: 44 us instead of 35, backward 71 instead of 58).
    static __device__ __forceinline__ Gelu at(float u) {
        float e = exp2_fast(-0.72134752044448170f * u * u);
        float t = reciprocal_fast(fmaf(0.265f, fabsf(u), 1.0f));
        float r = fmaf(t, -0.0677952f, 0.19530146f);
        r = fmaf(t, r, -0.06640205f);
        r = fmaf(t, r, 0.14252058f);
        r = fmaf(t, r, 0.08293658f);
        r = fmaf(t, r, 0.10783861f);
        r = fmaf(t, r, 0.10559971f);
        float tail = e * t * r;
        return {u < 0.0f ? tail : 1.0f - tail, 0.3989422804014327f * e};
    }
    static __device__ __forceinline__ float forward(float u) { return u * at(u).cdf; }
    static __device__ __forceinline__ float slope(float x, float bias) {
        float u = x + bias;
        Gelu normal = at(u);
        return fmaf(u, normal.density, normal.cdf);
    }
};

struct GeluTanh {
    static constexpr float TWICE_ROOT_TWO_OVER_PI = 1.5957691216057308f;
    // Computed with an exponential: with a hyperbolic tangent near 1, `1 - P` would lose all digits.
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
