//! The numerical operations ("ops"), one folder each: a pair of plain functions
//! `forward(inputs) -> (output, saved)` and `backward(d_output, saved) -> d_inputs`.
//!
//! `NAME.rs` documents the contract (formulas, shapes, saved values, which sums accumulate)
//! and dispatches by device. `cpu.rs` is the fast CPU code. `reference.rs` defines the correct result: the
//! same forward pass composed of candle functions that candle's autograd can differentiate, in any float
//! dtype. `cuda.rs` and `kernel.cu` are the GPU code, see [`cuda`]. Ops read no configuration, and no files
//! except the CUDA libraries.
//!
//! Three rules hold for all ops:
//!
//! 1. Gradients of parameters *accumulate* into the tensor that the caller passes, usually a view of the flat
//!    gradient buffer (see [`accumulator`]); gradients of activations are returned as new tensors.
//! 2. The partition of every sum into partial sums depends only on shapes, so a result is bitwise the same for
//!    any number of threads.
//! 3. What computes is not generic for other crates: generic code is compiled again in each crate that calls
//!    it, optimised as that crate is. A function that takes `impl Into<..>` only converts its arguments and
//!    calls one whose name ends in `_compiled`.

pub mod accumulator;
pub mod activation;
pub mod adamw;
pub mod add;
pub mod attention;
mod begin;
pub mod biased_attention;
pub mod computed;
pub mod cross_entropy;
pub mod cuda;
pub mod disentangled_attention;
pub mod distillation;
pub mod dropout;
pub mod element;
pub mod embedding;
pub mod first_row;
pub mod gated;
pub mod gather_rows;
pub mod gumbel;
pub mod indices;
pub mod lamb;
pub mod layer_norm;
pub mod linear;
pub mod linear_binary_cross_entropy;
pub mod linear_cross_entropy;
pub mod lion;
pub mod matmul;
pub mod mean_squared_error;
pub mod memory;
pub mod moving_average;
pub mod muon;
pub mod norm;
pub mod parallel;
pub mod peak;
pub mod replace_tokens;
pub mod residual_norm;
pub mod rotary;
pub mod scatter;
pub mod segment_mean;
pub mod sigmoid_cross_entropy;
pub mod simd;
pub mod soft_cross_entropy;
pub mod stable_adamw;
pub mod tensor;
pub mod update;
pub mod upload;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
