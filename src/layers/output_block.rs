//! The end of both blocks of an encoder layer: map, then bias + dropout + residual + `LayerNorm` in one op.

use candle_core::Result;
use candle_core::Tensor;

use crate::layers::Context;
use crate::layers::Footprint;
use crate::layers::Gradients;
use crate::layers::Registry;
use crate::layers::Site;
use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::ops::residual_norm;

/// `LayerNorm(residual + dropout(x W^T + b))`: `BertSelfOutput` and `BertOutput` of transformers.
#[derive(Debug, Clone)]
pub struct OutputBlock {
    dense: Linear,
    norm: Norm,
    site: Site,
    dropout: f64,
}

/// What backward needs besides the input.
#[derive(Debug)]
pub struct Saved {
    residual_norm: residual_norm::Saved,
}

/// Sizes and dropout of an output block.
#[derive(Debug, Clone, Copy)]
pub struct OutputSizes {
    /// Width of the input.
    pub inputs: usize,
    /// D.
    pub hidden: usize,
    /// Where its dropout draws from.
    pub site: Site,
    /// Dropout before the residual is added.
    pub dropout: f64,
    /// Added to the variance in `LayerNorm`.
    pub eps: f64,
}

impl OutputBlock {
    /// Registers `<name>.dense` and `<name>.LayerNorm`.
    pub fn new(registry: &mut Registry, name: &str, sizes: OutputSizes) -> Self {
        Self {
            dense: Linear::new(registry, &format!("{name}.dense"), sizes.inputs, sizes.hidden),
            norm: Norm::new(registry, &format!("{name}.LayerNorm"), sizes.hidden, sizes.eps),
            site: sizes.site,
            dropout: sizes.dropout,
        }
    }

    /// Floating-point operations for each token.
    pub fn flops(&self) -> f64 {
        self.dense.flops()
    }

    /// The sum before the norm, the norm's mean and deviation, and the output.
    pub fn saved(&self) -> Footprint {
        Footprint { values: 2 * self.dense.outputs as u64, statistics_bytes: 8 }
    }

    /// `[T, D]` from the block's input `x` and what the block began with.
    pub fn forward(&self, x: &Tensor, residual: &Tensor, ctx: &Context<'_>) -> Result<(Tensor, Saved)> {
        let projected = self.dense.forward_without_bias(x, ctx)?;
        let weights = residual_norm::Weights {
            bias: ctx.parameters.get(self.dense.bias),
            norm_weight: ctx.parameters.get(self.norm.weight),
            norm_bias: ctx.parameters.get(self.norm.bias),
            eps: self.norm.eps,
        };
        let dropout = ctx.dropout_at(self.site, self.dropout);
        let (y, residual_norm) =
            residual_norm::forward(&projected, residual, &weights, ctx.rows.token_keys, dropout.as_ref())?;
        Ok((y, Saved { residual_norm }))
    }

    /// Gradients of `x` and of the residual; the caller may add to the second one.
    pub fn backward(
        &self,
        dy: &Tensor,
        x: &Tensor,
        saved: &Saved,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<(Tensor, Tensor)> {
        let into = residual_norm::WeightGradients {
            dbias: gradients.get(self.dense.bias)?,
            dnorm_weight: gradients.get(self.norm.weight)?,
            dnorm_bias: gradients.get(self.norm.bias)?,
        };
        let dropout = ctx.dropout_at(self.site, self.dropout);
        let norm_weight = ctx.parameters.get(self.norm.weight);
        // Without dropout both are one tensor: `d_projected` is used up here, before anything is added to the
        // other.
        let (d_projected, d_residual) = residual_norm::backward(
            dy,
            &saved.residual_norm,
            norm_weight,
            &into,
            ctx.rows.token_keys,
            dropout.as_ref(),
        )?;
        Ok((self.dense.backward_without_bias(&d_projected, x, ctx, gradients)?, d_residual))
    }
}
