//! Matrix products on raw slices: the fast products that ops such as linear and attention share.
//!
//! `out[m, n] = scale * sum over terms of a[m, k] b[k, n]`, plus a bias for each column, or added to the
//! previous values of `out`. It is not an op by itself: it has no gradient. Operands are f32, bf16 or f16
//! with any strides, sums are f32, and `out` is f32 or has the type of the operands (rounded once). The order
//! of each sum depends on the depth `k` alone: results are bitwise the same for any number of threads.
//!
//! | operands | machine | kernel |
//! |---|---|---|
//! | f32 | AVX2 | `cpu/fma.rs`: 90 % of Sapphire Rapids' peak; `gemm` makes steps of base an eighth longer |
//! | f32 | any other | the `gemm` crate: 88 % of the peak of Zen 4 |
//! | bf16 | AMX on Linux (Sapphire Rapids and later) | `cpu/amx_bf16.rs`: `tdpbf16ps` flushes subnormals |
//! | bf16 | AVX-512-BF16 | `cpu/avx512_bf16.rs`: `vdpbf16ps` flushes subnormals in sums of two products |
//! | bf16, f16 | AVX2, AVX-512 | `cpu/fma.rs`: operands are converted to f32 while they are packed |
//! | bf16, f16 | any other | `cpu/widened.rs`: the same conversion, in plain loops |

pub mod cpu;
pub mod sparse;
#[cfg(test)]
mod tests;
