//! Discriminator: predicts for each token whether it was replaced. Map, GELU, map to one number, for all
//! tokens.
//!
//! This is `ElectraDiscriminatorPredictions` of transformers. In DeBERTa, the sum of a token and the first
//! token of its segment is normed before the map (`LMMaskPredictionHead` of microsoft/DeBERTa).

use candle_core::{DType, Result, Tensor};

use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::layers::{Context, Footprint, Gradients, Init, ParameterId, Part, Registry};
use crate::models::heads::HeadMemory;
use crate::models::norm;
use base::families::{ModelConfig, ReplacedTokens};
use ops::activation::Function;
use ops::computed::AnyIndices;
use ops::{activation, first_row, layer_norm, linear_binary_cross_entropy as op};

/// Intermediate values of the head, each `[T, D]`.
struct Activated {
    /// The input of the norm, and what the norm saved.
    normed: Option<(Tensor, layer_norm::Saved)>,
    /// The input of the map.
    input_td: Tensor,
    pre_activation_td: Tensor,
    activation_td: Tensor,
}

/// A discriminator head.
#[derive(Debug, Clone)]
pub struct ReplacedTokenHead {
    /// Norm of the sum of a token and the first token of its segment, if there is one.
    norm: Option<Norm>,
    dense: Linear,
    /// The map to one number.
    output_weight: ParameterId,
    output_bias: ParameterId,
}

impl ReplacedTokenHead {
    /// Registers norm and maps.
    pub fn new(registry: &mut Registry, config: &ModelConfig, form: ReplacedTokens) -> Self {
        registry.enter(Part::Head);
        let hidden = config.encoder.hidden_size;
        Self {
            norm: form.norm.map(|name| norm(registry, config, name, hidden)),
            dense: Linear::new(registry, form.dense, hidden, hidden),
            output_weight: registry.weight(format!("{}.weight", form.output), &[1, hidden], Init::Normal),
            output_bias: registry.vector(format!("{}.bias", form.output), 1, Init::Zeros),
        }
    }

    /// Floating-point operations of forward and backward of `tokens` tokens.
    pub fn flops(&self, tokens: f64) -> f64 {
        tokens * (self.dense.flops() + 6.0 * self.dense.outputs as f64)
    }

    /// Memory of `tokens` tokens.
    pub fn memory(&self, tokens: u64, compute: DType) -> HeadMemory {
        // Input and output of GELU; their gradients and that of the hidden states. A logit and its slope are
        // f32. For a norm its input and output, and the sum; the gradients of these.
        let normed = u64::from(self.norm.is_some());
        let width = self.dense.inputs as u64;
        let value_bytes = compute.size_in_bytes() as u64;
        let moment_bytes = self.norm.map_or(0, |norm| norm.form.saved_bytes());
        let saved = Footprint { values: (2 + 2 * normed) * width, statistics_bytes: moment_bytes };
        let besides = Footprint { values: (3 + 3 * normed) * width, statistics_bytes: 8 };
        HeadMemory {
            saved_bytes: saved.bytes(tokens, value_bytes),
            temporary_bytes: besides.bytes(tokens, value_bytes),
        }
    }

    /// Computes the values from the hidden states to the output of GELU.
    fn activated(&self, hidden_td: &Tensor, ctx: &Context<'_>) -> Result<Activated> {
        let (input_td, normed) = match &self.norm {
            None => (hidden_td.clone(), None),
            Some(norm) => {
                let sum_td = first_row::forward(hidden_td, ctx.rows.cu_seqlens)?;
                let (input_td, saved) = norm.forward(&sum_td, ctx)?;
                (input_td, Some((sum_td, saved)))
            }
        };
        let pre_activation_td = self.dense.forward_without_bias(&input_td, ctx)?;
        let activation_td = activation::forward(Function::Gelu, &pre_activation_td, self.dense.bias(ctx))?;
        Ok(Activated { normed, input_td, pre_activation_td, activation_td })
    }

    /// The gradient of the hidden states from that of the map's input.
    fn input_backward(
        &self,
        d_input: Tensor,
        activated: &Activated,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<Tensor> {
        let (Some(norm), Some((sum_td, saved))) = (&self.norm, &activated.normed) else { return Ok(d_input) };
        let d_sum = norm.backward(&d_input, sum_td, saved, ctx, gradients)?;
        first_row::backward(&d_sum, ctx.rows.cu_seqlens)
    }

    fn output<'a>(&self, ctx: &Context<'a>) -> op::Map<'a> {
        let parameters = ctx.parameters;
        op::Map { weight: parameters.get(self.output_weight), bias: parameters.get(self.output_bias) }
    }

    /// The logit of each token, f32 `[T]`: above 0 if the token is predicted to be replaced.
    pub fn logits(&self, hidden_td: &Tensor, ctx: &Context<'_>) -> Result<Tensor> {
        op::logits(&self.activated(hidden_td, ctx)?.activation_td, self.output(ctx))
    }

    /// The summed loss and the scores of all tokens, for [`op::Totals::read`]; `replaced` is 1 for tokens
    /// that were replaced, otherwise 0, `[T]`.
    pub fn totals(&self, hidden_td: &Tensor, replaced: AnyIndices<'_>, ctx: &Context<'_>) -> Result<Tensor> {
        op::forward(&self.activated(hidden_td, ctx)?.activation_td, self.output(ctx), replaced)
    }

    /// [`ReplacedTokenHead::totals`], and the gradient of `scale` times the summed loss with respect to the
    /// hidden states, `[T, D]`; the gradients of the head's parameters accumulate.
    pub fn totals_and_gradient(
        &self,
        hidden_td: &Tensor,
        replaced: AnyIndices<'_>,
        scale: f32,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<(Tensor, Tensor)> {
        let activated = self.activated(hidden_td, ctx)?;
        let into =
            op::Map { weight: gradients.get(self.output_weight)?, bias: gradients.get(self.output_bias)? };
        let (totals, d_activation) =
            op::forward_backward(&activated.activation_td, self.output(ctx), replaced, scale, into)?;
        let bias = self.dense.bias(ctx);
        let d_bias = self.dense.d_bias(gradients);
        let d_pre =
            activation::backward(Function::Gelu, &d_activation, &activated.pre_activation_td, bias, d_bias)?;
        let d_input = self.dense.backward_without_bias(&d_pre, &activated.input_td, ctx, gradients)?;
        let d_hidden = self.input_backward(d_input, &activated, ctx, gradients)?;
        gradients.left(ctx.pass, Part::Head)?;
        Ok((totals, d_hidden))
    }
}
