//! Reference implementation of attention, composed of candle's differentiable ops, one segment and head at a
//! time.

use candle_core::{D, Result, Tensor};

use super::Reach;

/// Computes attention in any float type. `factors[segment][head]` is the `[n, n]` dropout factor of the
/// probabilities.
pub fn forward(
    q_td: &Tensor,
    k_td: &Tensor,
    v_td: &Tensor,
    heads: usize,
    cu_seqlens: &[u32],
    reach: Reach,
    factors: Option<&[Vec<Tensor>]>,
) -> Result<Tensor> {
    let head_size = q_td.dim(1)? / heads;
    let scale = 1.0 / (head_size as f64).sqrt();
    let mut rows = Vec::new();
    for (segment, bounds) in cu_seqlens.windows(2).enumerate() {
        let start = bounds[0] as usize;
        let len = (bounds[1] - bounds[0]) as usize;
        if len == 0 {
            continue;
        }
        let mut columns = Vec::new();
        for head in 0..heads {
            let part =
                |t: &Tensor| t.narrow(0, start, len)?.narrow(1, head * head_size, head_size)?.contiguous();
            let mut scores = (part(q_td)?.matmul(&part(k_td)?.t()?)? * scale)?;
            if reach != Reach::ALL {
                scores = scores.broadcast_add(&unseen(len, reach, &scores)?)?;
            }
            columns.push(attended(&scores, factors.map(|factors| &factors[segment][head]), &part(v_td)?)?);
        }
        rows.push(Tensor::cat(&columns, 1)?);
    }
    Tensor::cat(&rows, 0)
}

/// Returns the output of a head for scores `[n, n]` and values `[n, K]`: the softmax of the scores, times the
/// dropout factors if there are any, times the values.
pub(crate) fn attended(scores_nn: &Tensor, factors_nn: Option<&Tensor>, v_nk: &Tensor) -> Result<Tensor> {
    // candle's own softmax over the last dimension detaches the autograd graph, so this one is composed of
    // basic ops.
    let exp = scores_nn.broadcast_sub(&scores_nn.max_keepdim(D::Minus1)?.detach())?.exp()?;
    let mut probabilities = exp.broadcast_div(&exp.sum_keepdim(D::Minus1)?)?;
    if let Some(factors) = factors_nn {
        probabilities = (probabilities * factors)?;
    }
    probabilities.matmul(v_nk)
}

/// Returns the mask `[n, n]` to add to scores: 0 if the query sees the key, else minus infinity.
fn unseen(n: usize, reach: Reach, like: &Tensor) -> Result<Tensor> {
    let mask = (0..n * n).map(|index| if reach.sees(index / n, index % n) { 0.0 } else { f64::NEG_INFINITY });
    Tensor::from_vec(mask.collect(), (n, n), like.device())?.to_dtype(like.dtype())
}
