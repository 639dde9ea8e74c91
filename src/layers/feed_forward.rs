//! Feed-forward block of an encoder layer: map, GELU, map, dropout + residual + `LayerNorm`.

use candle_core::Result;
use candle_core::Tensor;

use crate::layers::Context;
use crate::layers::Gradients;
use crate::layers::Registry;
use crate::layers::Site;
use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::ops::gelu;
use crate::ops::linear;
use crate::ops::residual_norm;

/// Sizes and dropout of the feed-forward block of layer `layer`.
#[derive(Debug, Clone, Copy)]
pub struct FeedForwardSizes {
    /// Index of the layer, for its dropout stream.
    pub layer: usize,
    /// D.
    pub hidden: usize,
    /// F.
    pub intermediate: usize,
    /// Dropout of the output.
    pub hidden_dropout: f64,
    /// Added to the variance in `LayerNorm`.
    pub eps: f64,
}

/// The feed-forward block.
#[derive(Debug, Clone)]
pub struct FeedForward {
    sizes: FeedForwardSizes,
    intermediate: Linear,
    output: Linear,
    norm: Norm,
}

/// What backward needs.
#[derive(Debug)]
pub struct Saved {
    x: Tensor,
    /// Before bias and GELU, `[T, F]`.
    pre_activation_tf: Tensor,
    activation_tf: Tensor,
    residual_norm: residual_norm::Saved,
}

impl FeedForward {
    /// Registers `<name>.intermediate.dense` and `<name>.output.{dense,LayerNorm}`.
    pub fn new(registry: &mut Registry, name: &str, sizes: FeedForwardSizes) -> Self {
        Self {
            intermediate: Linear::new(registry, &format!("{name}.intermediate.dense"), sizes.hidden, sizes.intermediate),
            output: Linear::new(registry, &format!("{name}.output.dense"), sizes.intermediate, sizes.hidden),
            norm: Norm::new(registry, &format!("{name}.output.LayerNorm"), sizes.hidden, sizes.eps),
            sizes,
        }
    }

    /// `LayerNorm(x + dropout(gelu(x W1 + b1) W2 + b2))`, `[T, D]`.
    pub fn forward(&self, x: &Tensor, ctx: &Context<'_>) -> Result<(Tensor, Saved)> {
        let pre_activation_tf = self.intermediate.forward_without_bias(x, ctx)?;
        let activation_tf = gelu::forward(&pre_activation_tf, ctx.parameters.get(self.intermediate.bias))?;
        let projected = self.output.forward_without_bias(&activation_tf, ctx)?;
        let dropout = ctx.dropout_at(Site::FeedForward(self.sizes.layer), self.sizes.hidden_dropout);
        let weights = residual_norm::Weights {
            bias: ctx.parameters.get(self.output.bias),
            norm_weight: ctx.parameters.get(self.norm.weight),
            norm_bias: ctx.parameters.get(self.norm.bias),
            eps: self.norm.eps,
        };
        let (y, residual_norm) = residual_norm::forward(&projected, x, &weights, ctx.rows.token_keys, dropout.as_ref())?;
        Ok((y, Saved { x: x.clone(), pre_activation_tf, activation_tf, residual_norm }))
    }

    /// Gradient of the input, `[T, D]`.
    pub fn backward(&self, dy: &Tensor, saved: &Saved, ctx: &Context<'_>, gradients: &Gradients) -> Result<Tensor> {
        let dropout = ctx.dropout_at(Site::FeedForward(self.sizes.layer), self.sizes.hidden_dropout);
        let into = residual_norm::WeightGradients {
            dbias: gradients.get(self.output.bias),
            dnorm_weight: gradients.get(self.norm.weight),
            dnorm_bias: gradients.get(self.norm.bias),
        };
        let norm_weight = ctx.parameters.get(self.norm.weight);
        // Without dropout both are one tensor: `d_projected` is used up before anything is added to `dx`.
        let (d_projected, dx) =
            residual_norm::backward(dy, &saved.residual_norm, norm_weight, &into, ctx.rows.token_keys, dropout.as_ref())?;
        let d_activation = self.output.backward_without_bias(&d_projected, &saved.activation_tf, ctx, gradients)?;
        let bias = ctx.parameters.get(self.intermediate.bias);
        let d_pre = gelu::backward(&d_activation, &saved.pre_activation_tf, bias, gradients.get(self.intermediate.bias))?;
        linear::backward_parameters(&d_pre, &saved.x, gradients.get(self.intermediate.weight), None)?;
        linear::backward_input_accumulate(&d_pre, ctx.parameters.get(self.intermediate.weight), &dx)?;
        Ok(dx)
    }
}
