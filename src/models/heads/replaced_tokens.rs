//! Discriminator: whether each token was replaced. Map, GELU, map to one number, for all tokens.
//!
//! `ElectraDiscriminatorPredictions` of transformers.

use candle_core::DType;
use candle_core::Result;
use candle_core::Tensor;

use crate::families::ModelConfig;
use crate::families::ReplacedTokenNames;
use crate::layers::Context;
use crate::layers::Footprint;
use crate::layers::Gradients;
use crate::layers::Init;
use crate::layers::ParameterId;
use crate::layers::Part;
use crate::layers::Registry;
use crate::layers::linear::Linear;
use crate::models::heads::HeadMemory;
use crate::ops::computed::AnyIndices;
use crate::ops::gelu;
use crate::ops::linear_binary_cross_entropy as op;

/// The head.
#[derive(Debug, Clone)]
pub struct ReplacedTokenHead {
    dense: Linear,
    /// The map to one number.
    output_weight: ParameterId,
    output_bias: ParameterId,
}

impl ReplacedTokenHead {
    /// Registers both maps.
    pub fn new(registry: &mut Registry, config: &ModelConfig, names: ReplacedTokenNames) -> Self {
        registry.enter(Part::Head);
        let hidden = config.encoder.hidden_size;
        Self {
            dense: Linear::new(registry, names.dense, hidden, hidden),
            output_weight: registry.weight(format!("{}.weight", names.output), &[1, hidden], Init::Normal),
            output_bias: registry.vector(format!("{}.bias", names.output), 1, Init::Zeros),
        }
    }

    /// Floating-point operations of forward and backward of so many tokens.
    pub fn flops(&self, tokens: f64) -> f64 {
        tokens * (self.dense.flops() + 6.0 * self.dense.outputs as f64)
    }

    /// What `tokens` tokens take.
    pub fn memory(&self, tokens: u64, compute: DType) -> HeadMemory {
        // Both sides of GELU; their gradients and that of the hidden states. A logit and its slope are f32.
        let width = self.dense.inputs as u64;
        let value_bytes = compute.size_in_bytes() as u64;
        let saved = Footprint { values: 2 * width, statistics_bytes: 0 };
        let besides = Footprint { values: 3 * width, statistics_bytes: 8 };
        HeadMemory {
            saved_bytes: saved.bytes(tokens, value_bytes),
            temporary_bytes: besides.bytes(tokens, value_bytes),
        }
    }

    /// Both sides of GELU, `[T, D]`.
    fn activated(&self, hidden_td: &Tensor, ctx: &Context<'_>) -> Result<(Tensor, Tensor)> {
        let pre_activation_td = self.dense.forward_without_bias(hidden_td, ctx)?;
        let activation_td = gelu::forward(&pre_activation_td, self.dense.bias(ctx))?;
        Ok((pre_activation_td, activation_td))
    }

    fn output<'a>(&self, ctx: &Context<'a>) -> op::Map<'a> {
        let parameters = ctx.parameters;
        op::Map { weight: parameters.get(self.output_weight), bias: parameters.get(self.output_bias) }
    }

    /// The logit of each token, f32 `[T]`: above 0 where it is held to be replaced.
    pub fn logits(&self, hidden_td: &Tensor, ctx: &Context<'_>) -> Result<Tensor> {
        op::logits(&self.activated(hidden_td, ctx)?.1, self.output(ctx))
    }

    /// The summed loss and the scores of all tokens, for [`op::Totals::read`]; `replaced` is 1 for tokens
    /// that were replaced, else 0, `[T]`.
    pub fn totals(&self, hidden_td: &Tensor, replaced: AnyIndices<'_>, ctx: &Context<'_>) -> Result<Tensor> {
        op::forward(&self.activated(hidden_td, ctx)?.1, self.output(ctx), replaced)
    }

    /// [`ReplacedTokenHead::totals`], and the gradient of `scale` times the summed loss by the hidden states,
    /// `[T, D]`; those of the head's parameters accumulate.
    pub fn totals_and_gradient(
        &self,
        hidden_td: &Tensor,
        replaced: AnyIndices<'_>,
        scale: f32,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<(Tensor, Tensor)> {
        let (pre_activation_td, activation_td) = self.activated(hidden_td, ctx)?;
        let into =
            op::Map { weight: gradients.get(self.output_weight)?, bias: gradients.get(self.output_bias)? };
        let (totals, d_activation) =
            op::forward_backward(&activation_td, self.output(ctx), replaced, scale, into)?;
        let (bias, d_bias) = (self.dense.bias(ctx), self.dense.d_bias(gradients));
        let d_pre = gelu::backward(&d_activation, &pre_activation_td, bias, d_bias)?;
        let d_hidden = self.dense.backward_without_bias(&d_pre, hidden_td, ctx, gradients)?;
        gradients.left(ctx.pass, Part::Head)?;
        Ok((totals, d_hidden))
    }
}
