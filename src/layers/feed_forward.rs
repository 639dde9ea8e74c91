//! Feed-forward block of an encoder layer: map, GELU, map, dropout + residual + `LayerNorm`.

use candle_core::Result;
use candle_core::Tensor;

use crate::layers::Context;
use crate::layers::Footprint;
use crate::layers::Gradients;
use crate::layers::Registry;
use crate::layers::Site;
use crate::layers::linear::Linear;
use crate::layers::output_block;
use crate::layers::output_block::OutputBlock;
use crate::layers::output_block::OutputSizes;
use crate::ops::gelu;
use crate::ops::linear;

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
    intermediate: Linear,
    output: OutputBlock,
}

/// What backward needs.
#[derive(Debug)]
pub struct Saved {
    x: Tensor,
    /// Before bias and GELU, `[T, F]`.
    pre_activation_tf: Tensor,
    activation_tf: Tensor,
    output: output_block::Saved,
}

impl FeedForward {
    /// Registers `<name>.intermediate.dense` and `<name>.output.{dense,LayerNorm}`.
    pub fn new(registry: &mut Registry, name: &str, sizes: FeedForwardSizes) -> Self {
        let output = OutputSizes {
            inputs: sizes.intermediate,
            hidden: sizes.hidden,
            site: Site::FeedForward(sizes.layer),
            dropout: sizes.hidden_dropout,
            eps: sizes.eps,
        };
        Self {
            intermediate: Linear::new(
                registry,
                &format!("{name}.intermediate.dense"),
                sizes.hidden,
                sizes.intermediate,
            ),
            output: OutputBlock::new(registry, &format!("{name}.output"), output),
        }
    }

    /// Floating-point operations for each token.
    pub fn flops(&self) -> f64 {
        self.intermediate.flops() + self.output.flops()
    }

    /// What is kept for backward: both sides of GELU, and the end of the block.
    pub fn saved(&self) -> Footprint {
        self.output.saved() + Footprint { values: 2 * self.intermediate.outputs as u64, statistics_bytes: 0 }
    }

    /// The most that backward needs besides: the gradients of both sides of GELU.
    pub fn temporary(&self) -> Footprint {
        Footprint { values: 2 * self.intermediate.outputs as u64, statistics_bytes: 0 }
    }

    /// `LayerNorm(x + dropout(gelu(x W1 + b1) W2 + b2))`, `[T, D]`.
    pub fn forward(&self, x: &Tensor, ctx: &Context<'_>) -> Result<(Tensor, Saved)> {
        let pre_activation_tf = self.intermediate.forward_without_bias(x, ctx)?;
        let activation_tf = gelu::forward(&pre_activation_tf, ctx.parameters.get(self.intermediate.bias))?;
        let (y, output) = self.output.forward(&activation_tf, x, ctx)?;
        Ok((y, Saved { x: x.clone(), pre_activation_tf, activation_tf, output }))
    }

    /// Gradient of the input, `[T, D]`.
    pub fn backward(
        &self,
        dy: &Tensor,
        saved: &Saved,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<Tensor> {
        let (d_activation, dx) =
            self.output.backward(dy, &saved.activation_tf, &saved.output, ctx, gradients)?;
        let bias = ctx.parameters.get(self.intermediate.bias);
        let d_pre = gelu::backward(
            &d_activation,
            &saved.pre_activation_tf,
            bias,
            gradients.get(self.intermediate.bias)?,
        )?;
        linear::backward_parameters(&d_pre, &saved.x, gradients.accumulator(self.intermediate.weight), None)?;
        linear::backward_inputs_accumulate(
            &[(&d_pre, ctx.parameters.compute(self.intermediate.weight))],
            &dx,
        )?;
        Ok(dx)
    }
}
