//! A linear map as a pair of parameters.

use candle_core::{Result, Tensor};

use crate::layers::{Context, Gradients, Init, ParameterId, Registry, Stream};
use ops::accumulator::Accumulator;
use ops::cuda::Gpu;
use ops::linear;

/// `y = x W^T + b` with `W` `[O, I]`, or without `b`.
#[derive(Debug, Clone, Copy)]
pub struct Linear {
    /// Weight, `[O, I]`.
    pub weight: ParameterId,
    /// Bias, `[O]`, if there is one.
    pub bias: Option<ParameterId>,
    /// Number of inputs (I).
    pub inputs: usize,
    /// Number of outputs (O).
    pub outputs: usize,
}

impl Linear {
    /// Registers `<name>.weight` and `<name>.bias`.
    pub fn new(registry: &mut Registry, name: &str, inputs: usize, outputs: usize) -> Self {
        Self::initialised(registry, name, [inputs, outputs], Init::Normal, true)
    }

    /// Registers `<name>.weight` with the initial values `init`, and `<name>.bias` if it `has_bias`.
    pub fn initialised(
        registry: &mut Registry,
        name: &str,
        [inputs, outputs]: [usize; 2],
        init: Init,
        has_bias: bool,
    ) -> Self {
        let weight = registry.weight(format!("{name}.weight"), &[outputs, inputs], init);
        registry.mark_product(weight);
        let bias = has_bias.then(|| registry.vector(format!("{name}.bias"), outputs, Init::Zeros));
        Self { weight, bias, inputs, outputs }
    }

    /// The value of the bias, if there is one.
    pub fn bias<'a>(&self, ctx: &Context<'a>) -> Option<&'a Tensor> {
        self.bias.map(|id| ctx.parameters.get(id))
    }

    /// The accumulator of the bias's gradient, for an op that either adds to it or overwrites it if it has
    /// not begun.
    pub fn d_bias<'a>(&self, gradients: &'a Gradients) -> Option<Accumulator<'a>> {
        self.bias.map(|id| gradients.accumulator(id))
    }

    /// Floating-point operations of the products of forward and backward, per row of `x`.
    pub fn flops(&self) -> f64 {
        6.0 * (self.inputs * self.outputs) as f64
    }

    /// Returns `x W^T + b`. On a GPU the product adds a bias of the compute type, which the parameters
    /// contain as well.
    pub fn forward(&self, x: &Tensor, ctx: &Context<'_>) -> Result<Tensor> {
        let linear::Map { weight_oi, bias_o } = self.map(Gpu::of(x)?.is_some(), ctx);
        linear::forward(x, weight_oi, bias_o)
    }

    fn map<'a>(&self, on_gpu: bool, ctx: &Context<'a>) -> linear::Map<'a> {
        let rounded = self.bias.filter(|_| on_gpu).map(|id| ctx.parameters.compute(id));
        linear::Map { weight_oi: ctx.parameters.compute(self.weight), bias_o: rounded.or(self.bias(ctx)) }
    }

    /// Returns `x W^T`, for a following op that adds the bias itself.
    pub fn forward_without_bias(&self, x: &Tensor, ctx: &Context<'_>) -> Result<Tensor> {
        linear::forward(x, ctx.parameters.compute(self.weight), None)
    }

    /// Returns the gradient of the input, and accumulates those of weight and bias.
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

    /// As [`Linear::backward`], for an output whose bias belongs to the following op.
    pub fn backward_without_bias(
        &self,
        dy: &Tensor,
        x: &Tensor,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<Tensor> {
        self.backward_weight(dy, x, gradients)?;
        linear::backward_input(dy, ctx.parameters.compute(self.weight))
    }

    /// Accumulates the gradient of the weight only.
    pub fn backward_weight(&self, dy: &Tensor, x: &Tensor, gradients: &Gradients) -> Result<()> {
        linear::backward_parameters(dy, x, gradients.accumulator(self.weight), None)
    }

    /// Accumulates the gradients of weight and bias only.
    pub fn backward_parameters(&self, dy: &Tensor, x: &Tensor, gradients: &Gradients) -> Result<()> {
        linear::backward_parameters(dy, x, gradients.accumulator(self.weight), self.d_bias(gradients))
    }
}

/// [`Linear::forward`] of several maps with the same input.
pub fn forward_maps<const N: usize>(
    maps: [&Linear; N],
    x: &Tensor,
    ctx: &Context<'_>,
) -> Result<[Tensor; N]> {
    let on_gpu = Gpu::of(x)?.is_some();
    linear::forward_maps(x, maps.map(|map| map.map(on_gpu, ctx)))
}

/// [`Linear::backward_parameters`] of several maps with the same input, each with the gradient of its output.
pub fn backward_parameters_of_maps<const N: usize>(
    maps: [(&Linear, &Tensor); N],
    x: &Tensor,
    gradients: &Gradients,
) -> Result<()> {
    let maps = maps.map(|(map, dy_to)| linear::MapGradients {
        dy_to,
        dweight_oi: gradients.accumulator(map.weight),
        dbias_o: map.d_bias(gradients),
    });
    linear::backward_parameters_of_maps(x, maps)
}

/// The gradient of a block's input stream: that of its input through the block's `maps` (gradient of the
/// output, weight), and that of its residual. If the input is also the residual (`is_apart` is false), all of
/// them are added into one sum, for which `d_residual` is overwritten.
pub fn backward_stream(maps: &[(&Tensor, &Tensor)], d_residual: Tensor, is_apart: bool) -> Result<Stream> {
    if !is_apart {
        linear::backward_inputs_accumulate(maps, &d_residual)?;
        return Ok(d_residual.into());
    }
    let ((first, rest), residual) = (maps.split_first().expect("a block has a map"), Some(d_residual));
    let input = linear::backward_input(first.0, first.1)?;
    linear::backward_inputs_accumulate(rest, &input)?;
    Ok(Stream { input, residual })
}
