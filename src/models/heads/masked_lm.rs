//! Masked-LM head: gather the masked rows, map, GELU, `LayerNorm`, decoder tied to the word embedding.
//!
//! Only the `M` masked positions reach it: there is never a `[T, V]` tensor, and in training no whole `[M,
//! V]` one either.

use candle_core::Result;
use candle_core::Tensor;

use crate::config::EncoderConfig;
use crate::layers::Context;
use crate::layers::Gradients;
use crate::layers::Init;
use crate::layers::ParameterId;
use crate::layers::Registry;
use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::models::heads::Head;
use crate::models::heads::Targets;
use crate::ops::cross_entropy::Entropy;
use crate::ops::gather_rows;
use crate::ops::gelu;
use crate::ops::indices::Indices;
use crate::ops::layer_norm;
use crate::ops::linear_cross_entropy;

/// Names of the head's parameters in a family.
#[derive(Debug, Clone, Copy)]
pub struct MaskedLmNames {
    /// The map.
    pub dense: &'static str,
    /// The `LayerNorm`.
    pub norm: &'static str,
    /// The decoder's bias.
    pub bias: &'static str,
}

/// The head.
#[derive(Debug, Clone)]
pub struct MaskedLmHead {
    dense: Linear,
    norm: Norm,
    decoder: Linear,
}

/// What backward needs besides the decoder's input.
#[derive(Debug)]
struct Saved {
    gathered_md: Tensor,
    pre_activation_md: Tensor,
    activation_md: Tensor,
    norm: layer_norm::Saved,
}

impl MaskedLmHead {
    /// Registers the head; the decoder's weight is `word_embedding`.
    pub fn new(
        registry: &mut Registry,
        names: MaskedLmNames,
        shape: &EncoderConfig,
        word_embedding: ParameterId,
    ) -> Self {
        Self {
            dense: Linear::new(registry, names.dense, shape.hidden_size, shape.hidden_size),
            norm: Norm::new(registry, names.norm, shape.hidden_size, shape.layer_norm_eps),
            decoder: Linear {
                weight: word_embedding,
                bias: registry.vector(names.bias, shape.vocab_size, Init::Zeros),
            },
        }
    }
}

impl MaskedLmHead {
    /// What the decoder takes, `[M, D]`.
    fn normed(
        &self,
        hidden_td: &Tensor,
        positions: Indices<'_>,
        ctx: &Context<'_>,
    ) -> Result<(Tensor, Saved)> {
        let get = |id| ctx.parameters.get(id);
        let gathered_md = gather_rows::forward(hidden_td, positions)?;
        let pre_activation_md = self.dense.forward_without_bias(&gathered_md, ctx)?;
        let activation_md = gelu::forward(&pre_activation_md, get(self.dense.bias))?;
        let (normed_md, norm) =
            layer_norm::forward(&activation_md, get(self.norm.weight), get(self.norm.bias), self.norm.eps)?;
        Ok((normed_md, Saved { gathered_md, pre_activation_md, activation_md, norm }))
    }

    fn decoder<'a>(&self, ctx: &Context<'a>) -> linear_cross_entropy::Map<'a> {
        let parameters = ctx.parameters;
        linear_cross_entropy::Map {
            weight_vd: parameters.compute(self.decoder.weight),
            bias_v: parameters.get(self.decoder.bias),
        }
    }
}

impl Head for MaskedLmHead {
    fn logits(&self, hidden_td: &Tensor, targets: Targets<'_>, ctx: &Context<'_>) -> Result<Tensor> {
        self.decoder.forward(&self.normed(hidden_td, targets.positions, ctx)?.0, ctx)
    }

    fn loss(&self, hidden_td: &Tensor, targets: Targets<'_>, ctx: &Context<'_>) -> Result<Entropy> {
        linear_cross_entropy::forward(
            &self.normed(hidden_td, targets.positions, ctx)?.0,
            self.decoder(ctx),
            targets.labels,
        )
    }

    fn loss_and_gradient(
        &self,
        hidden_td: &Tensor,
        targets: Targets<'_>,
        scale: f32,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<(Entropy, Tensor)> {
        let (normed_md, saved) = self.normed(hidden_td, targets.positions, ctx)?;
        let into = linear_cross_entropy::MapGradients {
            dweight_vd: gradients.accumulator(self.decoder.weight),
            dbias_v: gradients.accumulator(self.decoder.bias),
        };
        let (entropy, d_normed) = linear_cross_entropy::forward_backward(
            &normed_md,
            self.decoder(ctx),
            targets.labels,
            scale,
            into,
        )?;
        let norm_weight = ctx.parameters.get(self.norm.weight);
        let (d_weight, d_bias) = (gradients.get(self.norm.weight)?, gradients.get(self.norm.bias)?);
        let d_activation = layer_norm::backward(
            &d_normed,
            &saved.activation_md,
            norm_weight,
            &saved.norm,
            d_weight,
            d_bias,
        )?;
        let bias = ctx.parameters.get(self.dense.bias);
        let d_pre =
            gelu::backward(&d_activation, &saved.pre_activation_md, bias, gradients.get(self.dense.bias)?)?;
        let d_gathered = self.dense.backward_without_bias(&d_pre, &saved.gathered_md, ctx, gradients)?;
        Ok((entropy, gather_rows::backward(&d_gathered, targets.positions, hidden_td.dim(0)?)?))
    }
}
