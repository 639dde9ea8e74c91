//! Segments and dropout that tests of all kinds of attention draw.

use candle_core::DType;
use candle_core::Device;
use candle_core::Tensor;

use crate::attention::Segments;
use crate::dropout::Dropout;

/// Segments of these lengths, their tokens' keys, and the factors that are drawn for each head.
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
        let (cu_seqlens, token_keys) = ((&self.cu_seqlens).into(), (&self.token_keys).into());
        Segments { heads: self.heads, cu_seqlens, token_keys, window: None, dropout: self.dropout.as_ref() }
    }

    pub(crate) fn factors(&self) -> Option<Vec<Vec<Tensor>>> {
        let dropout = self.dropout?;
        let matrix = |start: usize, n: usize, head: usize| {
            let mut values = vec![0.0f32; n * n];
            for (row, factors) in values.chunks_exact_mut(n.max(1)).enumerate() {
                dropout.keep_row(self.token_keys[start + row] * self.heads as u64 + head as u64, factors);
            }
            Tensor::from_vec(values, (n, n), &Device::Cpu).unwrap().to_dtype(DType::F64).unwrap()
        };
        let of = |w: &[u32]| {
            (0..self.heads).map(|head| matrix(w[0] as usize, (w[1] - w[0]) as usize, head)).collect()
        };
        Some(self.cu_seqlens.windows(2).map(of).collect())
    }
}
