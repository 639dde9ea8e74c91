//! Attention with a learned bias for each head and token distance (Raffel et al., "T5", 2020, section 2.1;
//! Song et al., "MPNet", 2020).
//!
//! `b` is a table of [`ROWS`] rows, and `r(i, j)` is its row for query `i` and key `j` ([`row`]). With
//! `c = 1 / sqrt(K)` and `z` the dropout factor of a probability, for each head `h` and segment:
//!
//! ```text
//! s_ij = c q_i . k_j + b_r(i,j)h      p = softmax(s)      o = (p z) v
//! dv = (p z)^T do      dp = (do v^T) z      ds = p (dp - rowsum(do o))      dq = c ds k      dk = c ds^T q
//! db_rh = sum over all segments and their i, j with r(i,j) = r of ds_ij
//! ```
//!
//! `q`, `k`, `v`, `o` are `[T, D]` in f32, bf16 or f16; `b` and `db` are `[R, H]` in f32; head `h` has the
//! columns `h K .. (h + 1) K`. Saved: the log-sum-exp of each row of `s`, and all inputs; on a GPU also the
//! decisions of dropout. Nothing accumulates. Scores, softmax and sums are f32. `ds` is rounded to the dtype
//! of the tensors before it is summed for `db`, as it is before its products with queries and keys. All else
//! is the same as in [`crate::attention`]. The gradients of scores at one distance are added first, then
//! those of the distances of a row of the table, then those of the segments, all in an order that depends
//! only on shapes. There is never a tensor with a bias for each pair of tokens.

mod buckets;
mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{DType, Result, Tensor, bail};

use crate::attention::{Activations, Reach, Saved, Segments, check};
use crate::cuda::Gpu;
use crate::element::by_dtype;
use crate::tensor::check_shape;

pub use buckets::{ROWS, row};

/// Gradients of all inputs.
#[derive(Debug)]
pub struct InputGradients {
    /// Gradients of queries, keys and values, each `[T, D]`.
    pub of_contents: [Tensor; 3],
    /// Gradient of the table, f32 `[R, H]`.
    pub dbias_rh: Tensor,
}

/// Returns the attention output `[T, D]`, and the values that backward needs in addition to inputs and
/// output.
pub fn forward(
    q_td: &Tensor,
    k_td: &Tensor,
    v_td: &Tensor,
    bias_rh: &Tensor,
    segments: &Segments<'_>,
) -> Result<(Tensor, Saved)> {
    check_all(&[q_td, k_td, v_td], bias_rh, segments)?;
    match Gpu::of(q_td)? {
        None => by_dtype!("biased attention", q_td, T => {
            cpu::forward::<T>([q_td, k_td, v_td], bias_rh, segments)
        }),
        Some(gpu) => cuda::forward(&gpu, [q_td, k_td, v_td], bias_rh, segments),
    }
}

/// Returns the gradients of queries, keys, values and the table.
pub fn backward(
    do_td: &Tensor,
    activations: Activations<'_>,
    bias_rh: &Tensor,
    saved: &Saved,
    segments: &Segments<'_>,
) -> Result<InputGradients> {
    let Activations { q_td, k_td, v_td, o_td } = activations;
    check_all(&[do_td, q_td, k_td, v_td, o_td], bias_rh, segments)?;
    match Gpu::of(q_td)? {
        None => by_dtype!("biased attention", do_td, T => {
            cpu::backward::<T>(do_td, activations, bias_rh, saved, segments)
        }),
        Some(gpu) => cuda::backward(&gpu, do_td, activations, bias_rh, saved, segments),
    }
}

fn check_all(tensors: &[&Tensor], bias_rh: &Tensor, segments: &Segments<'_>) -> Result<()> {
    check(tensors, segments)?;
    if segments.reach != Reach::ALL {
        bail!("biased attention: every token attends to its whole segment, another reach is not built");
    }
    check_shape("biased attention: the bias", bias_rh, &[ROWS, segments.heads])?;
    if bias_rh.dtype() != DType::F32 {
        bail!("biased attention: the bias is {:?}, it must be f32", bias_rh.dtype());
    }
    Ok(())
}
