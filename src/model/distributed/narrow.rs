//! All-reduce of tensors on GPUs whose values are sent as bf16 and added up in f32. Gives the same bits as
//! the sums of `tree.rs`.

use std::ops::Range;

use candle_core::{DType, Tensor};

use crate::distributed::mark::Mark;
use crate::distributed::transport::{Carrier, Ended, Wait};
use crate::distributed::tree;
use ops::cuda;

/// Adds up `values`, a vector of f32, over all processes, in place: process `rank` of `size` adds up one part
/// and sends the sum to the others. A vector with fewer values than processes is added up as f32, since
/// kernels cannot be launched on empty parts.
pub(super) fn sum(
    carrier: &mut dyn Carrier,
    values: &Tensor,
    rank: usize,
    size: usize,
    wait: &Wait<'_>,
) -> Result<(), Ended> {
    let count = values.elem_count();
    if count < size {
        return carrier.sum(values, &mark(values)?, wait);
    }
    let parts: Vec<Range<usize>> = (0..size).map(|rank| tree::part(count, rank, size)).collect();
    let own = parts[rank].clone();
    let all = cuda::rounded(values, DType::BF16).map_err(failed)?;
    let given = Tensor::zeros(size * own.len(), DType::BF16, values.device()).map_err(failed)?;
    carrier.swap(&all, &parts, &given, &mark(&given)?, wait)?;
    let part = all.narrow(0, own.start, own.len()).map_err(failed)?;
    added_up(&given, size).and_then(|sums| cuda::overwrite(&part, &sums)).map_err(failed)?;
    carrier.share(&all, &parts, &mark(&all)?, wait)?;
    all.to_dtype(DType::F32).and_then(|sums| cuda::overwrite(values, &sums)).map_err(failed)
}

/// The sum of `count` consecutive bf16 vectors, added up in pairs in f32.
fn added_up(vectors: &Tensor, count: usize) -> candle_core::Result<Tensor> {
    let vectors = vectors.to_dtype(DType::F32)?.reshape((count, ()))?;
    let mut sums =
        (0..count).map(|index| vectors.get(index)).collect::<candle_core::Result<Vec<Tensor>>>()?;
    while sums.len() > 1 {
        let pairs = sums.chunks(2).map(|pair| match pair {
            [left, right] => left + right,
            alone => Ok(alone[0].clone()),
        });
        sums = pairs.collect::<candle_core::Result<_>>()?;
    }
    cuda::rounded(&sums[0], DType::BF16)
}

fn mark(tensor: &Tensor) -> Result<Mark, Ended> {
    Mark::behind(tensor).map_err(failed)
}

fn failed(error: impl Into<anyhow::Error>) -> Ended {
    Ended::Failed(error.into().to_string())
}
