//! Masked-LM head, for the masked rows: map to the width of the embeddings, GELU and norm if the family has
//! them, and the decoder, whose weight is the word embedding or one of its own.
//!
//! Only the `M` masked positions reach the head: there is never a `[T, V]` tensor, and in training no whole
//! `[M, V]` tensor either.

use candle_core::{DType, Result, Tensor};

use crate::layers::{Context, Footprint, Gradients, Init, ParameterId, Part, Registry};
use crate::models::heads::transform::Transform;
use crate::models::heads::{Head, HeadMemory, Targets, transform};
use crate::models::initial::Role;
use crate::models::{activation_function, initial};
use base::families::ModelConfig;
use ops::cross_entropy::Entropy;
use ops::linear_cross_entropy::{Draw, logits_in_memory};
use ops::{linear, linear_cross_entropy};

/// A masked-LM head.
#[derive(Debug, Clone)]
pub struct MaskedLmHead {
    transform: Option<Transform>,
    /// Width of the decoder's input (E).
    width: usize,
    /// The word embedding, or a weight of its own, `[V, E]`.
    decoder_weight: ParameterId,
    /// `[V]`.
    decoder_bias: ParameterId,
    /// Vocabulary size (V).
    vocab_size: usize,
}

impl MaskedLmHead {
    /// Registers the head; a tied decoder has the weight `word_embedding`.
    pub fn new(registry: &mut Registry, config: &ModelConfig, word_embedding: ParameterId) -> Self {
        registry.enter(Part::Head);
        let names = &config.family.masked_lm;
        let shape = &config.encoder;
        let width = shape.embedding_width();
        let outputs = shape.vocab_size;
        let function = activation_function(shape.hidden_act);
        let has_bias = config.family.has_biases;
        Self {
            transform: names
                .transform
                .map(|names| Transform::new(registry, config, names, function, width, has_bias)),
            width,
            decoder_weight: if names.is_tied {
                word_embedding
            } else {
                let init = initial::init(config, Role::Output);
                registry.weight(format!("{}.weight", names.decoder), &[outputs, width], init)
            },
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
    fn decoded(&self, hidden_md: &Tensor, ctx: &Context<'_>) -> Result<(Tensor, Option<transform::Saved>)> {
        let Some(transform) = &self.transform else { return Ok((hidden_md.clone(), None)) };
        let (normed_md, saved) = transform.forward(hidden_md, ctx)?;
        Ok((normed_md, Some(saved)))
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
        let transform = self.transform.map_or(0.0, |transform| transform.dense.flops());
        rows * (transform + 6.0 * (self.width * self.vocab_size) as f64)
    }

    fn memory(&self, rows: u64, compute: DType, on_gpu: bool) -> HeadMemory {
        // Saved: the norm's moments, and the log-sum-exp of the loss. In addition: the gradient of the hidden
        // states, and the logits of a piece. For a transform the input and output of its activation, the
        // normed rows, and the gradients of these.
        let width = self.width as u64;
        let besides = self.transform.map_or(width, |transform| transform.dense.inputs as u64 + 6 * width);
        let values = Footprint { values: besides, statistics_bytes: 0 };
        let moment_bytes = self.transform.as_ref().map_or(0, Transform::moment_bytes);
        HeadMemory {
            saved_bytes: (4 + moment_bytes) * rows,
            temporary_bytes: values.bytes(rows, compute.size_in_bytes() as u64)
                + self.logits_bytes(rows, compute, on_gpu),
        }
    }

    fn logits(&self, hidden_md: &Tensor, _: Targets<'_>, ctx: &Context<'_>) -> Result<Tensor> {
        let (normed_md, _) = self.decoded(hidden_md, ctx)?;
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
        let (normed_md, _) = self.decoded(hidden_md, ctx)?;
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
        let (normed_md, saved) = self.decoded(hidden_md, ctx)?;
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
        let d_hidden = match (&self.transform, &saved) {
            (Some(transform), Some(saved)) => {
                transform.backward(&d_normed, hidden_md, saved, ctx, gradients)?
            }
            _ => d_normed,
        };
        gradients.left(ctx.pass, Part::Head)?;
        Ok(Passed { entropy, d_hidden, drawn })
    }
}
