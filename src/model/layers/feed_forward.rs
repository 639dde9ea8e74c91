//! Feed-forward block of an encoder layer: map, activation (gated or not), dropout, and the end of the block.

use candle_core::{Result, Tensor};

use crate::layers::linear::Linear;
use crate::layers::output_block::OutputBlock;
use crate::layers::{Context, Footprint, Gradients, Stream, linear, output_block};
use ops::activation::Function;
use ops::dropout::Dropout;
use ops::{activation, dropout, gated};

/// The function between the two maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// A function of each output of the first map. Its derivative must need the input of the function.
    Pointwise(Function),
    /// The output of the first map is twice as wide: the function of its first half, times its second half.
    Gated(gated::Function),
}

/// The feed-forward block.
#[derive(Debug, Clone)]
pub struct FeedForward {
    /// The first map. Its bias is added by the op of the activation; a gated block has no bias.
    pub intermediate: Linear,
    /// The function between the two maps.
    pub activation: Activation,
    /// Dropout of the input of the second map. It draws from the stream of the output block's dropout; models
    /// with this dropout have no other one in the block.
    pub dropout: f64,
    /// The end of the block, whose input has F values.
    pub output: OutputBlock,
}

/// Values saved for the backward pass.
#[derive(Debug)]
pub struct Saved {
    x: Stream,
    /// Input of bias and activation, `[T, F]` or `[T, 2 F]`.
    pre_activation: Tensor,
    /// Output of activation and dropout.
    activation_tf: Tensor,
    output: output_block::Saved,
}

impl FeedForward {
    /// Floating-point operations for each token.
    pub fn flops(&self) -> f64 {
        self.intermediate.flops() + self.output.flops()
    }

    /// Memory saved for backward: input and output of the activation, and the end of the block.
    pub fn saved(&self) -> Footprint {
        self.output.saved() + self.activation_tensors()
    }

    /// Peak of the memory that backward needs in addition: the gradients of input and output of the
    /// activation, and of the dropped values.
    pub fn temporary(&self) -> Footprint {
        let dropped = if self.dropout > 0.0 { self.output.dense.inputs } else { 0 };
        self.activation_tensors() + Footprint { values: dropped as u64, statistics_bytes: 0 }
    }

    /// Memory of the input and the output of the activation.
    fn activation_tensors(&self) -> Footprint {
        let values = self.intermediate.outputs + self.output.dense.inputs;
        Footprint { values: values as u64, statistics_bytes: 0 }
    }

    /// The residual plus `dropout(dropout(F(x W1 + b1)) W2 + b2)`, and its norm.
    pub fn forward(&self, x: &Stream, ctx: &Context<'_>) -> Result<(Stream, Saved)> {
        let pre_activation = self.intermediate.forward_without_bias(&x.input, ctx)?;
        let activation_tf = match self.activation {
            Activation::Pointwise(function) => {
                activation::forward(function, &pre_activation, self.intermediate.bias(ctx))?
            }
            Activation::Gated(function) => gated::forward(function, &pre_activation)?,
        };
        let activation_tf =
            dropout::forward(&activation_tf, ctx.rows.token_keys, self.activation_dropout(ctx).as_ref())?;
        let (y, output) = self.output.forward(&activation_tf, x.residual(), ctx)?;
        Ok((y, Saved { x: x.clone(), pre_activation, activation_tf, output }))
    }

    /// Gradient of the block's input.
    pub fn backward(
        &self,
        gradient: &Stream,
        saved: &Saved,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<Stream> {
        let (d_activation, d_residual) =
            self.output.backward(gradient, &saved.activation_tf, &saved.output, ctx, gradients)?;
        let d_activation =
            dropout::backward(&d_activation, ctx.rows.token_keys, self.activation_dropout(ctx).as_ref())?;
        let map = &self.intermediate;
        let d_pre = match self.activation {
            Activation::Pointwise(function) => {
                let bias = map.bias(ctx);
                let d_bias = map.d_bias(gradients);
                activation::backward(function, &d_activation, &saved.pre_activation, bias, d_bias)?
            }
            Activation::Gated(function) => gated::backward(function, &d_activation, &saved.pre_activation)?,
        };
        map.backward_weight(&d_pre, &saved.x.input, gradients)?;
        let maps = [(&d_pre, ctx.parameters.compute(map.weight))];
        linear::backward_stream(&maps, d_residual, saved.x.residual.is_some())
    }

    fn activation_dropout(&self, ctx: &Context<'_>) -> Option<Dropout> {
        ctx.dropout_at(self.output.site, self.dropout)
    }
}
