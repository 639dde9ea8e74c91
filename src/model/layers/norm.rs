//! A norm of rows: `LayerNorm` or `RMSNorm`.

use candle_core::{Result, Tensor};

use crate::layers::{Context, Gradients, Init, ParameterId, Registry};
use ops::accumulator::Accumulator;
use ops::layer_norm;
use ops::layer_norm::Form;

/// Form, scale, shift and epsilon of a norm.
#[derive(Debug, Clone, Copy)]
pub struct Norm {
    /// Scale, `[D]`.
    pub weight: ParameterId,
    /// Shift, `[D]`, if there is one.
    pub bias: Option<ParameterId>,
    /// Number added to the variance.
    pub eps: f64,
    /// `LayerNorm` or `RMSNorm`.
    pub form: Form,
}

impl Norm {
    /// Registers `<name>.weight`, and `<name>.bias` if it `has_bias`.
    pub fn new(
        registry: &mut Registry,
        name: &str,
        size: usize,
        form: Form,
        eps: f64,
        has_bias: bool,
    ) -> Self {
        let weight = registry.vector(format!("{name}.weight"), size, Init::Ones);
        let bias = has_bias.then(|| registry.vector(format!("{name}.bias"), size, Init::Zeros));
        Self { weight, bias, eps, form }
    }

    /// The value of the shift, if there is one.
    pub fn bias<'a>(&self, ctx: &Context<'a>) -> Option<&'a Tensor> {
        self.bias.map(|id| ctx.parameters.get(id))
    }

    /// The accumulator of the shift's gradient, for an op that either adds to it or overwrites it if it has
    /// not begun.
    pub fn d_bias<'a>(&self, gradients: &'a Gradients) -> Option<Accumulator<'a>> {
        self.bias.map(|id| gradients.accumulator(id))
    }

    /// The normed rows of `x`, `[T, D]`.
    pub fn forward(&self, x: &Tensor, ctx: &Context<'_>) -> Result<(Tensor, layer_norm::Saved)> {
        layer_norm::forward(self.form, x, ctx.parameters.get(self.weight), self.bias(ctx), self.eps)
    }

    /// Returns the gradient of `x`, and accumulates those of scale and shift.
    pub fn backward(
        &self,
        dy: &Tensor,
        x: &Tensor,
        saved: &layer_norm::Saved,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<Tensor> {
        let weight = ctx.parameters.get(self.weight);
        let d_weight = gradients.get(self.weight)?;
        let d_bias = self.d_bias(gradients).map(Accumulator::begin).transpose()?;
        layer_norm::backward(dy, x, weight, saved, d_weight, d_bias)
    }
}
