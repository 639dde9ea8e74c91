//! Disentangled attention composed of candle's differentiable ops, one segment and head at a time, as the
//! reference.

use candle_core::{Result, Tensor};

use super::Buckets;
use crate::attention::reference::attended;

/// Attention of `q`, `k`, `v`, and of the optional keys and queries of positions, in any float type.
/// `factors[segment][head]` are the dropout factors of the probabilities, `[n, n]`.
pub fn forward(
    [q_td, k_td, v_td]: [&Tensor; 3],
    keys_rd: Option<&Tensor>,
    queries_rd: Option<&Tensor>,
    buckets: &Buckets,
    heads: usize,
    cu_seqlens: &[u32],
    factors: Option<&[Vec<Tensor>]>,
) -> Result<Tensor> {
    let head_size = q_td.dim(1)? / heads;
    let terms = 1 + keys_rd.iter().count() + queries_rd.iter().count();
    let scale = 1.0 / ((head_size * terms) as f64).sqrt();
    let mut rows = Vec::new();
    for (segment, bounds) in cu_seqlens.windows(2).enumerate() {
        let start = bounds[0] as usize;
        let len = (bounds[1] - bounds[0]) as usize;
        if len == 0 {
            continue;
        }
        let rows_nn = rows_of_pairs(buckets, len, q_td)?;
        let mut columns = Vec::new();
        for head in 0..heads {
            let [q, k, v] = [q_td, k_td, v_td]
                .map(|t| t.narrow(0, start, len)?.narrow(1, head * head_size, head_size)?.contiguous());
            let (q, k, v) = (q?, k?, v?);
            let [keys, queries] = [keys_rd, queries_rd].map(|table| {
                table.map(|t| t.narrow(1, head * head_size, head_size)?.t()?.contiguous()).transpose()
            });
            let mut scores = q.matmul(&k.t()?)?;
            if let Some(keys) = keys? {
                scores = (scores + q.matmul(&keys)?.gather(&rows_nn, 1)?)?;
            }
            if let Some(queries) = queries? {
                // Row j of the product belongs to key j, so it is gathered by key, then transposed.
                let by_key = k.matmul(&queries)?.gather(&rows_nn.t()?.contiguous()?, 1)?;
                scores = (scores + by_key.t()?)?;
            }
            let scores = (scores * scale)?;
            columns.push(attended(&scores, factors.map(|factors| &factors[segment][head]), &v)?);
        }
        rows.push(Tensor::cat(&columns, 1)?);
    }
    Tensor::cat(&rows, 0)
}

/// `[n, n]`: the row of the table for query `i` and key `j`.
fn rows_of_pairs(buckets: &Buckets, n: usize, like: &Tensor) -> Result<Tensor> {
    let distances = (0..n * n).map(|index| (index / n) as isize - (index % n) as isize);
    let rows: Vec<u32> = distances.map(|distance| buckets.row(distance) as u32).collect();
    Tensor::from_vec(rows, (n, n), like.device())
}
