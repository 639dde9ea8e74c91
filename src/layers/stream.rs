//! What passes from block to block of an encoder, forward and backward.

use candle_core::Result;
use candle_core::Tensor;
use candle_core::bail;

/// Hidden states between two blocks, or their gradients, `[T, D]`.
///
/// Where norms stand after their blocks (BERT), what a block reads is also what its output is added to. Where
/// they stand before (pre-norm), the sum of all blocks so far runs beside its norm.
#[derive(Debug, Clone)]
pub struct Stream {
    /// What the next block reads.
    pub input: Tensor,
    /// What the next block's output is added to, where that is not `input`.
    pub residual: Option<Tensor>,
}

impl Stream {
    /// What the next block's output is added to.
    pub fn residual(&self) -> &Tensor {
        self.residual.as_ref().unwrap_or(&self.input)
    }
}

impl From<Tensor> for Stream {
    fn from(input: Tensor) -> Self {
        Self { input, residual: None }
    }
}

/// Where the `LayerNorm` of a block's end stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormPlacement {
    /// Its output is all that the next block sees (post-norm).
    After,
    /// It stands before the next block, whose output is added to what was not normed (pre-norm).
    Before,
}

impl NormPlacement {
    /// The hidden states behind a block, from the sum and its norm.
    pub fn stream(self, normed: Tensor, sum: &Tensor) -> Stream {
        match self {
            Self::After => normed.into(),
            Self::Before => Stream { input: normed, residual: Some(sum.clone()) },
        }
    }

    /// The gradient of the sum that comes past the norm.
    ///
    /// # Errors
    ///
    /// After a norm there is none.
    pub fn past_norm(self, gradient: &Stream) -> Result<Option<&Tensor>> {
        match (self, &gradient.residual) {
            (Self::After, Some(_)) => bail!("a gradient comes past a norm that stands after its block"),
            (_, residual) => Ok(residual.as_ref()),
        }
    }
}
