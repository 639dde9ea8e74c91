//! The definition of correct, composed of candle's differentiable ops, one segment and head at a time.

use candle_core::Result;
use candle_core::Tensor;

use super::Buckets;
use crate::attention::reference::attended;

/// Attention in any float type of `q`, `k`, `v`, and of keys and queries of positions where there are any.
/// `factors[segment][head]` is the `[n, n]` dropout factor of the probabilities.
pub fn forward(
    [q_td, k_td, v_td]: [&Tensor; 3],
    keys_rd: Option<&Tensor>,
    queries_rd: Option<&Tensor>,
    buckets: &Buckets,
    (heads, cu_seqlens): (usize, &[u32]),
    factors: Option<&[Vec<Tensor>]>,
) -> Result<Tensor> {
    let head_size = q_td.dim(1)? / heads;
    let terms = 1 + keys_rd.iter().count() + queries_rd.iter().count();
    let scale = 1.0 / ((head_size * terms) as f64).sqrt();
    let mut rows = Vec::new();
    for (segment, bounds) in cu_seqlens.windows(2).enumerate() {
        let (start, len) = (bounds[0] as usize, (bounds[1] - bounds[0]) as usize);
        if len == 0 {
            continue;
        }
        let rows_nn = rows_of_pairs(buckets, len, q_td)?;
        let mut columns = Vec::new();
        for head in 0..heads {
            let part =
                |t: &Tensor| t.narrow(0, start, len)?.narrow(1, head * head_size, head_size)?.contiguous();
            let table = |t: &Tensor| t.narrow(1, head * head_size, head_size)?.t()?.contiguous();
            let (q, k) = (part(q_td)?, part(k_td)?);
            let mut scores = q.matmul(&k.t()?)?;
            if let Some(keys) = keys_rd {
                scores = (scores + q.matmul(&table(keys)?)?.gather(&rows_nn, 1)?)?;
            }
            if let Some(queries) = queries_rd {
                // Row j of the product is that of key j: gathered by key, then turned.
                let by_key = k.matmul(&table(queries)?)?.gather(&rows_nn.t()?.contiguous()?, 1)?;
                scores = (scores + by_key.t()?)?;
            }
            let scores = (scores * scale)?;
            columns.push(attended(&scores, factors.map(|factors| &factors[segment][head]), &part(v_td)?)?);
        }
        rows.push(Tensor::cat(&columns, 1)?);
    }
    Tensor::cat(&rows, 0)
}

/// `[n, n]`: the row of the table for query `i` and key `j`.
fn rows_of_pairs(buckets: &Buckets, n: usize, like: &Tensor) -> Result<Tensor> {
    let at = |index: usize| buckets.row((index / n) as isize - (index % n) as isize) as u32;
    Tensor::from_vec((0..n * n).map(at).collect::<Vec<u32>>(), (n, n), like.device())
}
