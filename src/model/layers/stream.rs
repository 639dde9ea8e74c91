//! The hidden states or gradients that are passed from block to block of an encoder, forward and backward.

use candle_core::{Result, Tensor, bail};

/// Hidden states between two blocks, or their gradients, `[T, D]`.
///
/// In post-norm models (BERT), a block's input is also its residual. In pre-norm models, the residual (the
/// sum of all blocks so far) is passed along in addition to its norm.
#[derive(Debug, Clone)]
pub struct Stream {
    /// The input of the next block.
    pub input: Tensor,
    /// The residual to which the next block's output is added, if it is not `input`.
    pub residual: Option<Tensor>,
}

impl Stream {
    /// The residual to which the next block's output is added.
    pub fn residual(&self) -> &Tensor {
        self.residual.as_ref().unwrap_or(&self.input)
    }
}

impl From<Tensor> for Stream {
    fn from(input: Tensor) -> Self {
        Self { input, residual: None }
    }
}

/// Position of the norm at the end of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormPlacement {
    /// After the block: the normed sum is the input and the residual of the next block (post-norm).
    After,
    /// Before the next block, whose output is added to the sum without norm (pre-norm).
    Before,
}

impl NormPlacement {
    /// The hidden states after a block, from the sum and its norm.
    pub fn stream(self, normed: Tensor, sum: &Tensor) -> Stream {
        match self {
            Self::After => normed.into(),
            Self::Before => Stream { input: normed, residual: Some(sum.clone()) },
        }
    }

    /// The gradient of the sum that bypasses the norm.
    ///
    /// # Errors
    ///
    /// In post-norm models there is no such gradient.
    pub fn past_norm(self, gradient: &Stream) -> Result<Option<&Tensor>> {
        match (self, &gradient.residual) {
            (Self::After, Some(_)) => bail!("a gradient comes past a norm that stands after its block"),
            (_, residual) => Ok(residual.as_ref()),
        }
    }
}
