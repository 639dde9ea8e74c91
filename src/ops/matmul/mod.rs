//! Matrix products on raw slices: the one door to the `gemm` crate that linear and attention share.
//!
//! Not an op by itself: it has no gradient. Products are f32 with f32 accumulation.

pub mod cpu;
