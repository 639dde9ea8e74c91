//! The end of both blocks of an encoder layer: map, followed by bias + dropout + residual + norm in one op.
//!
//! In pre-norm models, the norm at the end of a block is the norm that the next block begins with.

use candle_core::{Result, Tensor};

use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::layers::{Context, Footprint, Gradients, NormPlacement, Site, Stream};
use ops::residual_norm;

/// `LayerNorm(residual + dropout(x W^T + b))`: `BertSelfOutput` and `BertOutput` of transformers.
#[derive(Debug, Clone)]
pub struct OutputBlock {
    /// The map.
    pub dense: Linear,
    /// The norm of the sum.
    pub norm: Norm,
    /// Position of the norm: after this block or before the next one.
    pub placement: NormPlacement,
    /// The dropout site, which selects the random stream.
    pub site: Site,
    /// Dropout before the residual is added.
    pub dropout: f64,
}

/// Values saved for the backward pass, in addition to the input.
#[derive(Debug)]
pub struct Saved {
    residual_norm: residual_norm::Saved,
}

impl OutputBlock {
    /// Floating-point operations for each token.
    pub fn flops(&self) -> f64 {
        self.dense.flops()
    }

    /// Memory saved for backward: the sum before the norm, the norm's moments, and the output.
    pub fn saved(&self) -> Footprint {
        Footprint { values: 2 * self.dense.outputs as u64, statistics_bytes: self.norm.form.saved_bytes() }
    }

    /// Bytes of the dropout mask that a GPU saves for `tokens` tokens.
    pub fn kept_bytes(&self, tokens: u64) -> u64 {
        if self.dropout > 0.0 { residual_norm::kept_bytes(tokens, self.dense.outputs as u64) } else { 0 }
    }

    /// Hidden states after the block, from the map's input `x` and the block's `residual`.
    pub fn forward(&self, x: &Tensor, residual: &Tensor, ctx: &Context<'_>) -> Result<(Stream, Saved)> {
        let projected = self.dense.forward_without_bias(x, ctx)?;
        let weights = residual_norm::Weights {
            bias: self.dense.bias(ctx),
            norm_weight: ctx.parameters.get(self.norm.weight),
            norm_bias: self.norm.bias(ctx),
            eps: self.norm.eps,
            form: self.norm.form,
        };
        let dropout = ctx.dropout_at(self.site, self.dropout);
        let (y, residual_norm) =
            residual_norm::forward(&projected, residual, &weights, ctx.rows.token_keys, dropout.as_ref())?;
        let stream = self.placement.stream(y, &residual_norm.sum_td);
        Ok((stream, Saved { residual_norm }))
    }

    /// Gradients of `x` and of the residual; the caller may add to the second one.
    pub fn backward(
        &self,
        gradient: &Stream,
        x: &Tensor,
        saved: &Saved,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<(Tensor, Tensor)> {
        let into = residual_norm::WeightGradients {
            dbias: self.dense.d_bias(gradients),
            dnorm_weight: gradients.accumulator(self.norm.weight),
            dnorm_bias: self.norm.d_bias(gradients),
        };
        let dropout = ctx.dropout_at(self.site, self.dropout);
        let norm_weight = ctx.parameters.get(self.norm.weight);
        // Without dropout both are one tensor: `d_projected` is consumed here, before anything is added to
        // `d_residual`.
        let (d_projected, d_residual) = residual_norm::backward(
            &gradient.input,
            self.placement.past_norm(gradient)?,
            &saved.residual_norm,
            norm_weight,
            &into,
            ctx.rows.token_keys,
            dropout.as_ref(),
        )?;
        Ok((self.dense.backward_without_bias(&d_projected, x, ctx, gradients)?, d_residual))
    }
}
