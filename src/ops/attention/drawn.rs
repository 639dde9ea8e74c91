//! Segments and dropout factors for the tests of all kinds of attention.

use candle_core::{DType, Device, Tensor};

use crate::attention::{Reach, Segments};
use crate::dropout::Dropout;

/// Batch of segments with the dropout keys of their tokens.
pub(crate) struct Batch {
    pub(crate) heads: usize,
    pub(crate) cu_seqlens: Vec<u32>,
    pub(crate) token_keys: Vec<u64>,
    pub(crate) dropout: Option<Dropout>,
}

impl Batch {
    pub(crate) fn new(heads: usize, lengths: &[u32], dropout: Option<Dropout>) -> Self {
        let mut cu_seqlens = vec![0];
        for n in lengths {
            cu_seqlens.push(cu_seqlens[cu_seqlens.len() - 1] + n);
        }
        let token_keys = (0..u64::from(cu_seqlens[lengths.len()])).map(|t| t * 3 + 5).collect();
        Self { heads, cu_seqlens, token_keys, dropout }
    }

    pub(crate) fn segments(&self) -> Segments<'_> {
        Segments {
            heads: self.heads,
            cu_seqlens: (&self.cu_seqlens).into(),
            token_keys: (&self.token_keys).into(),
            reach: Reach::ALL,
            dropout: self.dropout.as_ref(),
        }
    }

    /// Returns the dropout factors of each segment and head; `None` without dropout.
    pub(crate) fn factors(&self) -> Option<Vec<Vec<Tensor>>> {
        let dropout = self.dropout?;
        Some(factors(&dropout, self.heads, &self.cu_seqlens, &self.token_keys))
    }
}

/// Returns the dropout factors that the op draws, `[n, n]` in f64 for each segment and head, as the reference
/// takes them.
pub(crate) fn factors(
    dropout: &Dropout,
    heads: usize,
    cu_seqlens: &[u32],
    token_keys: &[u64],
) -> Vec<Vec<Tensor>> {
    let segments = cu_seqlens.windows(2).map(|bounds| {
        let token_keys = &token_keys[bounds[0] as usize..bounds[1] as usize];
        (0..heads).map(|head| factors_of_head(dropout, heads, head, token_keys)).collect()
    });
    segments.collect()
}

/// Returns the dropout factors `[n, n]` of one head of the segment of these tokens.
fn factors_of_head(dropout: &Dropout, heads: usize, head: usize, token_keys: &[u64]) -> Tensor {
    let n = token_keys.len();
    let mut values = vec![0.0f32; n * n];
    for (key, factors) in token_keys.iter().zip(values.chunks_exact_mut(n.max(1))) {
        dropout.keep_row(key * heads as u64 + head as u64, factors);
    }
    Tensor::from_vec(values, (n, n), &Device::Cpu).unwrap().to_dtype(DType::F64).unwrap()
}
