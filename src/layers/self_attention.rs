//! Self-attention of an encoder layer: projections, attention, output map, dropout + residual + `LayerNorm`.

use candle_core::Result;
use candle_core::Tensor;

use crate::layers::Context;
use crate::layers::Gradients;
use crate::layers::Registry;
use crate::layers::Site;
use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::ops::attention;
use crate::ops::attention::Activations;
use crate::ops::residual_norm;

/// Sizes and dropout of the attention block of layer `layer`.
#[derive(Debug, Clone, Copy)]
pub struct AttentionSizes {
    /// Index of the layer, for its dropout streams.
    pub layer: usize,
    /// D.
    pub hidden: usize,
    /// H.
    pub heads: usize,
    /// Dropout of the probabilities.
    pub probability_dropout: f64,
    /// Dropout of the output.
    pub hidden_dropout: f64,
    /// Added to the variance in `LayerNorm`.
    pub eps: f64,
}

/// The attention block.
#[derive(Debug, Clone)]
pub struct SelfAttention {
    sizes: AttentionSizes,
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    norm: Norm,
}

/// What backward needs.
#[derive(Debug)]
pub struct Saved {
    x: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    attention: attention::Saved,
    residual_norm: residual_norm::Saved,
}

impl SelfAttention {
    /// Registers `<name>.self.{query,key,value}` and `<name>.output.{dense,LayerNorm}`.
    pub fn new(registry: &mut Registry, name: &str, sizes: AttentionSizes) -> Self {
        let d = sizes.hidden;
        Self {
            query: Linear::new(registry, &format!("{name}.self.query"), d, d),
            key: Linear::new(registry, &format!("{name}.self.key"), d, d),
            value: Linear::new(registry, &format!("{name}.self.value"), d, d),
            output: Linear::new(registry, &format!("{name}.output.dense"), d, d),
            norm: Norm::new(registry, &format!("{name}.output.LayerNorm"), d, sizes.eps),
            sizes,
        }
    }

    /// `LayerNorm(x + dropout(attention(x)))`, `[T, D]`.
    pub fn forward(&self, x: &Tensor, ctx: &Context<'_>) -> Result<(Tensor, Saved)> {
        let sizes = &self.sizes;
        let (q, k, v) = (self.query.forward(x, ctx)?, self.key.forward(x, ctx)?, self.value.forward(x, ctx)?);
        let dropout = ctx.dropout_at(Site::AttentionProbabilities(sizes.layer), sizes.probability_dropout);
        let (o, attention) = attention::forward(&q, &k, &v, &ctx.segments(sizes.heads, dropout.as_ref()))?;
        let projected = self.output.forward_without_bias(&o, ctx)?;
        let dropout = ctx.dropout_at(Site::AttentionOutput(sizes.layer), sizes.hidden_dropout);
        let weights = residual_norm::Weights {
            bias: ctx.parameters.get(self.output.bias),
            norm_weight: ctx.parameters.get(self.norm.weight),
            norm_bias: ctx.parameters.get(self.norm.bias),
            eps: self.norm.eps,
        };
        let (y, residual_norm) = residual_norm::forward(&projected, x, &weights, ctx.rows.token_keys, dropout.as_ref())?;
        Ok((y, Saved { x: x.clone(), q, k, v, o, attention, residual_norm }))
    }

    /// Gradient of the input, `[T, D]`.
    pub fn backward(&self, dy: &Tensor, saved: &Saved, ctx: &Context<'_>, gradients: &Gradients) -> Result<Tensor> {
        let sizes = &self.sizes;
        let dropout = ctx.dropout_at(Site::AttentionOutput(sizes.layer), sizes.hidden_dropout);
        let into = residual_norm::WeightGradients {
            dbias: gradients.get(self.output.bias),
            dnorm_weight: gradients.get(self.norm.weight),
            dnorm_bias: gradients.get(self.norm.bias),
        };
        let norm_weight = ctx.parameters.get(self.norm.weight);
        // Without dropout both are one tensor: `d_projected` is used up before anything is added to `dx`.
        let (d_projected, dx) =
            residual_norm::backward(dy, &saved.residual_norm, norm_weight, &into, ctx.rows.token_keys, dropout.as_ref())?;
        let d_out = self.output.backward_without_bias(&d_projected, &saved.o, ctx, gradients)?;
        let dropout = ctx.dropout_at(Site::AttentionProbabilities(sizes.layer), sizes.probability_dropout);
        let activations = Activations { q_td: &saved.q, k_td: &saved.k, v_td: &saved.v, o_td: &saved.o };
        let [dq, dk, dv] = attention::backward(&d_out, activations, &saved.attention, &ctx.segments(sizes.heads, dropout.as_ref()))?;
        // The input feeds four paths; their gradients meet in the residual's.
        self.query.backward_into(&dq, &saved.x, &dx, ctx, gradients)?;
        self.key.backward_into(&dk, &saved.x, &dx, ctx, gradients)?;
        self.value.backward_into(&dv, &saved.x, &dx, ctx, gradients)?;
        Ok(dx)
    }
}
