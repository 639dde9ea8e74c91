//! Token classifier: the labelled tokens, a map with GELU and norm if the family has one, dropout, map to
//! labels.
//!
//! This is `BertForTokenClassification` of transformers, and the identical ones of RoBERTa, ELECTRA and
//! DistilBERT; and `ModernBertForTokenClassification`, which has the first map. Only tokens with a label are
//! computed.

use candle_core::{DType, Result, Tensor};

use crate::layers::linear::Linear;
use crate::layers::{Context, Footprint, Gradients, Part, Registry, Site};
use crate::models::heads::transform::Transform;
use crate::models::heads::{Head, HeadMemory, Targets, transform};
use crate::models::initial;
use crate::models::initial::Role;
use base::families::{HeadActivation, ModelConfig, TransformNames};
use ops::activation::Function;
use ops::cross_entropy::Entropy;
use ops::{cross_entropy, dropout};

/// A token classification head.
#[derive(Debug, Clone)]
pub struct TokenClassificationHead {
    transform: Option<Transform>,
    output: Linear,
    dropout: f64,
}

/// Values saved for the backward pass.
#[derive(Debug)]
struct Saved {
    transform: Option<transform::Saved>,
    /// Input of the map to labels, `[M, D]`.
    output_input: Tensor,
}

impl TokenClassificationHead {
    /// Registers the maps; the parameters of the map to labels have names that begin with `name`.
    pub fn new(registry: &mut Registry, config: &ModelConfig, name: &str, num_labels: usize) -> Self {
        registry.enter(Part::Head);
        let shape = &config.encoder;
        let init = initial::init(config, Role::Labels);
        let names = &config.family.classification;
        debug_assert!(names.norm.is_none() || names.activation == HeadActivation::Gelu, "no other is built");
        Self {
            transform: names.norm.map(|norm| {
                let transform = TransformNames { dense: names.dense, norm };
                Transform::new(registry, config, transform, Function::Gelu, shape.hidden_size, names.has_bias)
            }),
            output: Linear::initialised(registry, name, [shape.hidden_size, num_labels], init, true),
            dropout: (config.family.dropouts)(shape).token_classifier,
        }
    }

    /// Logits, `[M, labels]`.
    fn forward(
        &self,
        hidden_md: &Tensor,
        targets: Targets<'_>,
        ctx: &Context<'_>,
    ) -> Result<(Tensor, Saved)> {
        let (rows_md, transform) = match self.transform {
            None => (hidden_md.clone(), None),
            Some(transform) => {
                let (normed_md, saved) = transform.forward(hidden_md, ctx)?;
                (normed_md, Some(saved))
            }
        };
        let dropout = ctx.dropout_at(Site::HeadOutput, self.dropout);
        let output_input = dropout::forward(&rows_md, targets.keys, dropout.as_ref())?;
        Ok((self.output.forward(&output_input, ctx)?, Saved { transform, output_input }))
    }
}

impl Head for TokenClassificationHead {
    fn flops(&self, rows: f64) -> f64 {
        rows * (self.output.flops() + self.transform.map_or(0.0, |transform| transform.dense.flops()))
    }

    fn memory(&self, rows: u64, compute: DType, _on_gpu: bool) -> HeadMemory {
        // Saved: the input of the map to labels. In addition: the gathered rows, the gradients of both, and
        // the f32 logits with their gradient. For a transform the values it saves, and the gradients between
        // its parts.
        let width = self.output.inputs as u64;
        let labels = self.output.outputs as u64;
        let more = u64::from(self.transform.is_some());
        let moment_bytes = self.transform.as_ref().map_or(0, Transform::moment_bytes);
        let saved = Footprint { values: (1 + 3 * more) * width, statistics_bytes: moment_bytes };
        let besides = Footprint { values: (3 + 2 * more) * width + labels, statistics_bytes: 4 * labels };
        let value_bytes = compute.size_in_bytes() as u64;
        HeadMemory {
            saved_bytes: saved.bytes(rows, value_bytes),
            temporary_bytes: besides.bytes(rows, value_bytes),
        }
    }

    fn logits(&self, hidden_md: &Tensor, targets: Targets<'_>, ctx: &Context<'_>) -> Result<Tensor> {
        Ok(self.forward(hidden_md, targets, ctx)?.0)
    }

    fn loss(&self, hidden_md: &Tensor, targets: Targets<'_>, ctx: &Context<'_>) -> Result<Tensor> {
        Ok(cross_entropy::forward(&self.logits(hidden_md, targets, ctx)?, targets.labels)?.totals)
    }

    fn loss_and_gradient(
        &self,
        hidden_md: &Tensor,
        targets: Targets<'_>,
        scale: f32,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<(Tensor, Tensor)> {
        let (logits, saved) = self.forward(hidden_md, targets, ctx)?;
        let Entropy { totals, log_sum_exp_m } = cross_entropy::forward(&logits, targets.labels)?;
        let d_logits = cross_entropy::backward(logits, targets.labels, &log_sum_exp_m, scale)?;
        let d_input = self.output.backward(&d_logits, &saved.output_input, ctx, gradients)?;
        let dropout = ctx.dropout_at(Site::HeadOutput, self.dropout);
        let mut d_hidden = dropout::backward(&d_input, targets.keys, dropout.as_ref())?;
        if let (Some(transform), Some(saved)) = (&self.transform, &saved.transform) {
            d_hidden = transform.backward(&d_hidden, hidden_md, saved, ctx, gradients)?;
        }
        gradients.left(ctx.pass, Part::Head)?;
        Ok((totals, d_hidden))
    }
}
