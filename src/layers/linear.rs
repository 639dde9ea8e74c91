//! A linear map as a pair of parameters.

use candle_core::Result;
use candle_core::Tensor;

use crate::layers::Context;
use crate::layers::Gradients;
use crate::layers::Init;
use crate::layers::ParameterId;
use crate::layers::Registry;
use crate::ops::linear;

/// `y = x W^T + b` with `W` `[O, I]`.
#[derive(Debug, Clone, Copy)]
pub struct Linear {
    /// `[O, I]`.
    pub weight: ParameterId,
    /// `[O]`.
    pub bias: ParameterId,
    /// I.
    pub inputs: usize,
    /// O.
    pub outputs: usize,
}

impl Linear {
    /// Registers `<name>.weight` and `<name>.bias`.
    pub fn new(registry: &mut Registry, name: &str, inputs: usize, outputs: usize) -> Self {
        Self {
            weight: registry.weight(format!("{name}.weight"), &[outputs, inputs], Init::Normal),
            bias: registry.vector(format!("{name}.bias"), outputs, Init::Zeros),
            inputs,
            outputs,
        }
    }

    /// Floating-point operations of the products of forward and backward, for each row of `x`.
    pub fn flops(&self) -> f64 {
        6.0 * (self.inputs * self.outputs) as f64
    }

    /// `x W^T + b`.
    pub fn forward(&self, x: &Tensor, ctx: &Context<'_>) -> Result<Tensor> {
        linear::forward(x, ctx.parameters.compute(self.weight), Some(ctx.parameters.get(self.bias)))
    }

    /// `x W^T`, for an op that adds the bias itself.
    pub fn forward_without_bias(&self, x: &Tensor, ctx: &Context<'_>) -> Result<Tensor> {
        linear::forward(x, ctx.parameters.compute(self.weight), None)
    }

    /// Gradient of the input; those of weight and bias accumulate.
    pub fn backward(
        &self,
        dy: &Tensor,
        x: &Tensor,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<Tensor> {
        self.backward_parameters(dy, x, gradients)?;
        linear::backward_input(dy, ctx.parameters.compute(self.weight))
    }

    /// As [`Linear::backward`], for an output whose bias belongs to the op that follows.
    pub fn backward_without_bias(
        &self,
        dy: &Tensor,
        x: &Tensor,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<Tensor> {
        linear::backward_parameters(dy, x, gradients.accumulator(self.weight), None)?;
        linear::backward_input(dy, ctx.parameters.compute(self.weight))
    }

    /// Accumulates the gradients of weight and bias alone.
    pub fn backward_parameters(&self, dy: &Tensor, x: &Tensor, gradients: &Gradients) -> Result<()> {
        linear::backward_parameters(
            dy,
            x,
            gradients.accumulator(self.weight),
            Some(gradients.accumulator(self.bias)),
        )
    }
}
