//! Disentangled attention over packed rows (He et al., "DeBERTa", 2021, section 3.1): queries and keys have
//! products with each other, and also with the keys and queries of relative positions.
//!
//! `kr` and `qr` are projections of a table of relative positions, and `r(i, j)` is its row for query `i` and
//! key `j` ([`Buckets`]). With `N` the number of terms of a score, `c = 1 / sqrt(K N)`, and `z` the dropout
//! factor of a probability, for each head and segment:
//!
//! ```text
//! s_ij = c (q_i . k_j + q_i . kr_r(i,j) + k_j . qr_r(i,j))      p = softmax(s)      o = (p z) v
//! dv = (p z)^T do      dp = (do v^T) z      ds = p (dp - rowsum(do o))
//! dcr_ir = sum over j with r(i,j) = r of ds_ij      dpr_jr = sum over i with r(i,j) = r of ds_ij
//! dq = c (ds k + dcr kr)    dk = c (ds^T q + dpr qr)    dkr = c dcr^T q    dqr = c dpr^T k
//! ```
//!
//! The second term is "content to position" (`c2p`), the third "position to content" (`p2c`); either may be
//! absent. `q`, `k`, `v`, `o` are `[T, D]`, `kr` and `qr` are `[R, D]`; head `h` has the columns
//! `h K .. (h + 1) K`. Saved: the log-sum-exp of each row of `s`, and all inputs. Nothing accumulates.
//! Tensors are f32, bf16 or f16; scores, softmax and sums are f32. The position scores `q kr^T` and `k qr^T`
//! are computed for each segment and head with the rows that the segment's distances use, `[n, R]` at most;
//! there is never a tensor of positions for each pair of tokens. On a GPU the position scores of all tokens
//! are computed at once, and are rounded to the dtype of the tensors.

mod buckets;
mod cpu;
mod cuda;
pub mod reference;
mod rows;
#[cfg(test)]
mod tests;

use candle_core::{Result, Tensor, bail};

use crate::attention::{Activations, Reach, Saved, Segments, check};
use crate::cuda::Gpu;
use crate::element::by_dtype;
use crate::tensor::check_shape;

pub use buckets::Buckets;

/// The relative positions of attention.
#[derive(Debug, Clone, Copy)]
pub struct Relative<'a> {
    /// The assignment of distances to rows of the tables.
    pub buckets: &'a Buckets,
    /// The keys of positions `kr`, `[R, D]`; `None` without the `c2p` term.
    pub keys_rd: Option<&'a Tensor>,
    /// The queries of positions `qr`, `[R, D]`; `None` without the `p2c` term.
    pub queries_rd: Option<&'a Tensor>,
}

impl Relative<'_> {
    /// Number of terms of a score: that of contents and those of positions.
    fn terms(&self) -> usize {
        1 + usize::from(self.keys_rd.is_some()) + usize::from(self.queries_rd.is_some())
    }
}

/// Gradients of all inputs.
#[derive(Debug)]
pub struct InputGradients {
    /// Gradients of queries, keys and values, each `[T, D]`.
    pub of_contents: [Tensor; 3],
    /// Gradient of [`Relative::keys_rd`], `[R, D]`.
    pub dkeys_rd: Option<Tensor>,
    /// Gradient of [`Relative::queries_rd`], `[R, D]`.
    pub dqueries_rd: Option<Tensor>,
}

/// Returns the attention output `[T, D]`, and the values that backward needs in addition to inputs and
/// output.
pub fn forward(
    q_td: &Tensor,
    k_td: &Tensor,
    v_td: &Tensor,
    relative: &Relative<'_>,
    segments: &Segments<'_>,
) -> Result<(Tensor, Saved)> {
    check_all(&[q_td, k_td, v_td], relative, segments)?;
    match Gpu::of(q_td)? {
        None => by_dtype!("disentangled attention", q_td, T => {
            cpu::forward::<T>([q_td, k_td, v_td], relative, segments)
        }),
        Some(gpu) => cuda::forward(&gpu, [q_td, k_td, v_td], relative, segments),
    }
}

/// Returns the gradients of queries, keys, values and the projections of positions.
pub fn backward(
    do_td: &Tensor,
    activations: Activations<'_>,
    relative: &Relative<'_>,
    saved: &Saved,
    segments: &Segments<'_>,
) -> Result<InputGradients> {
    let Activations { q_td, k_td, v_td, o_td } = activations;
    check_all(&[do_td, q_td, k_td, v_td, o_td], relative, segments)?;
    match Gpu::of(q_td)? {
        None => by_dtype!("disentangled attention", do_td, T => {
            cpu::backward::<T>(do_td, activations, relative, saved, segments)
        }),
        Some(gpu) => cuda::backward(&gpu, do_td, activations, relative, saved, segments),
    }
}

fn check_all(tensors: &[&Tensor], relative: &Relative<'_>, segments: &Segments<'_>) -> Result<()> {
    check(tensors, segments)?;
    if segments.reach != Reach::ALL {
        bail!("disentangled attention: every token attends to its whole segment, another reach is not built");
    }
    let shape = [relative.buckets.rows(), tensors[0].dim(1)?];
    for (what, t) in [("keys", relative.keys_rd), ("queries", relative.queries_rd)] {
        let Some(t) = t else { continue };
        check_shape(&format!("disentangled attention: {what} of positions"), t, &shape)?;
    }
    Ok(())
}
