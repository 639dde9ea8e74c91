//! The transform between hidden states and the last map of a head: map, activation, norm.

use candle_core::{Result, Tensor};

use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::layers::{Context, Gradients, Registry};
use crate::models::initial::Role;
use crate::models::{initial, norm};
use base::families::{ModelConfig, TransformNames};
use ops::activation::Function;
use ops::{activation, layer_norm};

/// Map, activation and norm.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transform {
    pub(super) dense: Linear,
    function: Function,
    norm: Norm,
}

/// Values saved for the backward pass in addition to the input, `[M, width]`.
#[derive(Debug)]
pub(super) struct Saved {
    pre_activation_md: Tensor,
    activation_md: Tensor,
    norm: layer_norm::Saved,
}

impl Transform {
    /// Registers map and norm for outputs of this `width`.
    pub(super) fn new(
        registry: &mut Registry,
        config: &ModelConfig,
        names: TransformNames,
        function: Function,
        width: usize,
        has_bias: bool,
    ) -> Self {
        let init = initial::init(config, Role::Output);
        let sizes = [config.encoder.hidden_size, width];
        Self {
            dense: Linear::initialised(registry, names.dense, sizes, init, has_bias),
            function,
            norm: norm(registry, config, names.norm, width),
        }
    }

    /// Bytes of the moments that the norm saves for each row.
    pub(super) fn moment_bytes(&self) -> u64 {
        self.norm.form.saved_bytes()
    }

    /// The normed rows, `[M, width]`.
    pub(super) fn forward(&self, hidden_md: &Tensor, ctx: &Context<'_>) -> Result<(Tensor, Saved)> {
        let pre_activation_md = self.dense.forward_without_bias(hidden_md, ctx)?;
        let activation_md = activation::forward(self.function, &pre_activation_md, self.dense.bias(ctx))?;
        let (normed_md, norm) = self.norm.forward(&activation_md, ctx)?;
        Ok((normed_md, Saved { pre_activation_md, activation_md, norm }))
    }

    /// The gradient of the hidden states.
    pub(super) fn backward(
        &self,
        d_normed: &Tensor,
        hidden_md: &Tensor,
        saved: &Saved,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<Tensor> {
        let d_activation = self.norm.backward(d_normed, &saved.activation_md, &saved.norm, ctx, gradients)?;
        let bias = self.dense.bias(ctx);
        let d_bias = self.dense.d_bias(gradients);
        let d_pre =
            activation::backward(self.function, &d_activation, &saved.pre_activation_md, bias, d_bias)?;
        self.dense.backward_without_bias(&d_pre, hidden_md, ctx, gradients)
    }
}
