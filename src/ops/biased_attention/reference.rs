//! Biased attention composed of candle's differentiable ops, one segment and head at a time, as the
//! reference.

use candle_core::{Result, Tensor};

use super::row;
use crate::attention::reference::attended;

/// Biased attention in any float type. `bias_rh` is the table; `factors[segment][head]` are the dropout
/// factors of the probabilities, `[n, n]`.
pub fn forward(
    [q_td, k_td, v_td]: [&Tensor; 3],
    bias_rh: &Tensor,
    heads: usize,
    cu_seqlens: &[u32],
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
        let rows_of_pairs = rows_of_pairs(len, q_td)?;
        let mut columns = Vec::new();
        for head in 0..heads {
            let [q, k, v] = [q_td, k_td, v_td]
                .map(|t| t.narrow(0, start, len)?.narrow(1, head * head_size, head_size)?.contiguous());
            let of_head = bias_rh.narrow(1, head, 1)?.flatten_all()?.contiguous()?;
            let bias_nn = of_head.index_select(&rows_of_pairs, 0)?.reshape((len, len))?;
            let scores = ((q?.matmul(&k?.t()?)? * scale)? + bias_nn)?;
            columns.push(attended(&scores, factors.map(|factors| &factors[segment][head]), &v?)?);
        }
        rows.push(Tensor::cat(&columns, 1)?);
    }
    Tensor::cat(&rows, 0)
}

/// `[n n]`: the row of the table for query `i` and key `j`, at index `i n + j`.
fn rows_of_pairs(n: usize, like: &Tensor) -> Result<Tensor> {
    let distances = (0..n * n).map(|index| (index / n) as isize - (index % n) as isize);
    let rows: Vec<u32> = distances.map(|distance| row(distance) as u32).collect();
    Tensor::from_vec(rows, n * n, like.device())
}
