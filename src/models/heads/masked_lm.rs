//! Masked-LM head, for the masked rows: map to the width of the embeddings, GELU, `LayerNorm`, decoder tied
//! to the word embedding.
//!
//! Only the `M` masked positions reach the head: there is never a `[T, V]` tensor, and in training no whole
//! `[M, V]` tensor either.

use candle_core::{DType, Result, Tensor};

use crate::families::ModelConfig;
use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::layers::{Context, Footprint, Gradients, Init, ParameterId, Part, Registry};
use crate::models::heads::{Head, HeadMemory, Targets};
use crate::models::initial::Role;
use crate::models::{activation_function, initial};
use crate::ops::activation::Function;
use crate::ops::cross_entropy::Entropy;
use crate::ops::linear_cross_entropy::{Draw, logits_in_memory};
use crate::ops::{activation, layer_norm, linear, linear_cross_entropy};

/// A masked-LM head.
#[derive(Debug, Clone)]
pub struct MaskedLmHead {
    dense: Linear,
    function: Function,
    norm: Norm,
    /// The word embedding, `[V, E]`.
    decoder_weight: ParameterId,
    /// `[V]`.
    decoder_bias: ParameterId,
    /// Vocabulary size (V).
    vocab_size: usize,
}

/// Values saved for backward, in addition to the inputs of the head and of its decoder.
#[derive(Debug)]
struct Saved {
    pre_activation_md: Tensor,
    activation_md: Tensor,
    norm: layer_norm::Saved,
}

impl MaskedLmHead {
    /// Registers the head; the decoder's weight is `word_embedding`.
    pub fn new(registry: &mut Registry, config: &ModelConfig, word_embedding: ParameterId) -> Self {
        registry.enter(Part::Head);
        let names = &config.family.masked_lm;
        let shape = &config.encoder;
        let width = shape.embedding_width();
        let outputs = shape.vocab_size;
        let has_bias = config.family.has_biases;
        let init = initial::init(config, Role::Output);
        Self {
            dense: Linear::initialised(registry, names.dense, [shape.hidden_size, width], init, has_bias),
            function: activation_function(shape.hidden_act),
            norm: Norm::new(registry, names.norm, width, shape.layer_norm_eps, has_bias),
            decoder_weight: word_embedding,
            decoder_bias: registry.vector(names.bias, outputs, Init::Zeros),
            vocab_size: outputs,
        }
    }

    /// Bytes of the f32 logits that are in memory at one time, and of their gradient.
    fn logits_bytes(&self, rows: u64, compute: DType, on_gpu: bool) -> u64 {
        let logits = logits_in_memory(rows as usize, self.vocab_size, on_gpu);
        logits as u64 * (4 + compute.size_in_bytes() as u64)
    }
}

impl MaskedLmHead {
    /// The input of the decoder, `[M, E]`.
    fn normed(&self, hidden_md: &Tensor, ctx: &Context<'_>) -> Result<(Tensor, Saved)> {
        let pre_activation_md = self.dense.forward_without_bias(hidden_md, ctx)?;
        let activation_md = activation::forward(self.function, &pre_activation_md, self.dense.bias(ctx))?;
        let (normed_md, norm) = self.norm.forward(&activation_md, ctx)?;
        Ok((normed_md, Saved { pre_activation_md, activation_md, norm }))
    }

    fn decoder<'a>(&self, ctx: &Context<'a>) -> linear_cross_entropy::Map<'a> {
        let parameters = ctx.parameters;
        linear_cross_entropy::Map {
            weight_vd: parameters.compute(self.decoder_weight),
            bias_v: parameters.get(self.decoder_bias),
        }
    }
}

impl Head for MaskedLmHead {
    fn flops(&self, rows: f64) -> f64 {
        rows * (self.dense.flops() + 6.0 * (self.dense.outputs * self.vocab_size) as f64)
    }

    fn memory(&self, rows: u64, compute: DType, on_gpu: bool) -> HeadMemory {
        // Saved: the norm's mean and deviation, and the log-sum-exp of the loss. In addition: input and
        // output of GELU, the normed rows, the gradients of these and of the hidden states, and the logits of
        // a piece.
        let hidden = self.dense.inputs as u64;
        let width = self.dense.outputs as u64;
        let seven = Footprint { values: hidden + 6 * width, statistics_bytes: 0 };
        let values = seven.bytes(rows, compute.size_in_bytes() as u64);
        HeadMemory {
            saved_bytes: 12 * rows,
            temporary_bytes: values + self.logits_bytes(rows, compute, on_gpu),
        }
    }

    fn logits(&self, hidden_md: &Tensor, _: Targets<'_>, ctx: &Context<'_>) -> Result<Tensor> {
        let (normed_md, _) = self.normed(hidden_md, ctx)?;
        let linear_cross_entropy::Map { weight_vd, bias_v } = self.decoder(ctx);
        linear::forward(&normed_md, weight_vd, Some(bias_v))
    }

    fn loss(&self, hidden_md: &Tensor, targets: Targets<'_>, ctx: &Context<'_>) -> Result<Tensor> {
        Ok(self.loss_and_draws(hidden_md, targets, None, ctx)?.0.totals)
    }

    fn loss_and_gradient(
        &self,
        hidden_md: &Tensor,
        targets: Targets<'_>,
        scale: f32,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<(Tensor, Tensor)> {
        let passed = self.pass(hidden_md, targets, scale, None, ctx, gradients)?;
        Ok((passed.entropy.totals, passed.d_hidden))
    }
}

/// The result of a pass that may draw ids, as for a generator.
pub struct Passed {
    /// The summed cross-entropy.
    pub entropy: Entropy,
    /// The gradient of the hidden states, `[M, D]`.
    pub d_hidden: Tensor,
    /// The drawn ids, u32 `[M]`, if ids were to be drawn.
    pub drawn: Option<Tensor>,
}

impl MaskedLmHead {
    /// The summed cross-entropy, and with `draw` an id for each target, drawn from the head's prediction.
    pub fn loss_and_draws(
        &self,
        hidden_md: &Tensor,
        targets: Targets<'_>,
        draw: Option<Draw<'_>>,
        ctx: &Context<'_>,
    ) -> Result<(Entropy, Option<Tensor>)> {
        let (normed_md, _) = self.normed(hidden_md, ctx)?;
        linear_cross_entropy::forward(&normed_md, self.decoder(ctx), targets.labels, draw)
    }

    /// [`Head::loss_and_gradient`], and with `draw` an id for each target.
    pub fn pass(
        &self,
        hidden_md: &Tensor,
        targets: Targets<'_>,
        scale: f32,
        draw: Option<Draw<'_>>,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<Passed> {
        let (normed_md, saved) = self.normed(hidden_md, ctx)?;
        let into = linear_cross_entropy::MapGradients {
            dweight_vd: gradients.accumulator(self.decoder_weight),
            dbias_v: gradients.accumulator(self.decoder_bias),
        };
        let linear_cross_entropy::Passed { entropy, dx_md: d_normed, drawn } =
            linear_cross_entropy::forward_backward(
                &normed_md,
                self.decoder(ctx),
                targets.labels,
                scale,
                into,
                draw,
            )?;
        let d_activation =
            self.norm.backward(&d_normed, &saved.activation_md, &saved.norm, ctx, gradients)?;
        let bias = self.dense.bias(ctx);
        let d_bias = self.dense.d_bias(gradients);
        let d_pre =
            activation::backward(self.function, &d_activation, &saved.pre_activation_md, bias, d_bias)?;
        let d_hidden = self.dense.backward_without_bias(&d_pre, hidden_md, ctx, gradients)?;
        gradients.left(ctx.pass, Part::Head)?;
        Ok(Passed { entropy, d_hidden, drawn })
    }
}
