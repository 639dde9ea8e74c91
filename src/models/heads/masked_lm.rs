//! Masked-LM head: gather the masked rows, map, GELU, `LayerNorm`, decoder tied to the word embedding.
//!
//! Only the `M` masked positions reach it: there is never a `[T, V]` tensor.

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
use crate::ops::gather_rows;
use crate::ops::gelu;
use crate::ops::layer_norm;
use crate::ops::linear;

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

/// What backward needs.
#[derive(Debug)]
pub struct Saved {
    gathered_md: Tensor,
    pre_activation_md: Tensor,
    activation_md: Tensor,
    normed_md: Tensor,
    norm: layer_norm::Saved,
}

impl MaskedLmHead {
    /// Registers the head; the decoder's weight is `word_embedding`.
    pub fn new(registry: &mut Registry, names: MaskedLmNames, shape: &EncoderConfig, word_embedding: ParameterId) -> Self {
        Self {
            dense: Linear::new(registry, names.dense, shape.hidden_size, shape.hidden_size),
            norm: Norm::new(registry, names.norm, shape.hidden_size, shape.layer_norm_eps),
            decoder: Linear { weight: word_embedding, bias: registry.vector(names.bias, shape.vocab_size, Init::Zeros) },
        }
    }
}

impl Head for MaskedLmHead {
    type Saved = Saved;

    fn forward(&self, hidden_td: &Tensor, positions: &[u32], ctx: &Context<'_>) -> Result<(Tensor, Saved)> {
        let get = |id| ctx.parameters.get(id);
        let gathered_md = gather_rows::forward(hidden_td, positions)?;
        let pre_activation_md = self.dense.forward_without_bias(&gathered_md, ctx)?;
        let activation_md = gelu::forward(&pre_activation_md, get(self.dense.bias))?;
        let (normed_md, norm) = layer_norm::forward(&activation_md, get(self.norm.weight), get(self.norm.bias), self.norm.eps)?;
        let logits_mv = self.decoder.forward(&normed_md, ctx)?;
        Ok((logits_mv, Saved { gathered_md, pre_activation_md, activation_md, normed_md, norm }))
    }

    fn backward(
        &self,
        d_logits_mv: &Tensor,
        positions: &[u32],
        tokens: usize,
        saved: &Saved,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<Tensor> {
        let d_normed = self.decoder.backward(d_logits_mv, &saved.normed_md, ctx, gradients)?;
        let norm_weight = ctx.parameters.get(self.norm.weight);
        let (d_weight, d_bias) = (gradients.get(self.norm.weight), gradients.get(self.norm.bias));
        let d_activation = layer_norm::backward(&d_normed, &saved.activation_md, norm_weight, &saved.norm, d_weight, d_bias)?;
        let bias = ctx.parameters.get(self.dense.bias);
        let d_pre = gelu::backward(&d_activation, &saved.pre_activation_md, bias, gradients.get(self.dense.bias))?;
        linear::backward_parameters(&d_pre, &saved.gathered_md, gradients.get(self.dense.weight), None)?;
        let d_gathered = linear::backward_input(&d_pre, ctx.parameters.compute(self.dense.weight))?;
        gather_rows::backward(&d_gathered, positions, tokens)
    }
}
