//! Token classifier: the labelled tokens, dropout, map to labels.
//!
//! `BertForTokenClassification` of transformers, and RoBERTa's and ELECTRA's, which are the same. Only the
//! tokens that carry a label are mapped.

use candle_core::DType;
use candle_core::Result;
use candle_core::Tensor;

use crate::families::ModelConfig;
use crate::layers::Context;
use crate::layers::Footprint;
use crate::layers::Gradients;
use crate::layers::Part;
use crate::layers::Registry;
use crate::layers::Site;
use crate::layers::linear::Linear;
use crate::models::heads::Head;
use crate::models::heads::HeadMemory;
use crate::models::heads::Targets;
use crate::ops::cross_entropy;
use crate::ops::cross_entropy::Entropy;
use crate::ops::dropout;
use crate::ops::gather_rows;

/// The head.
#[derive(Debug, Clone)]
pub struct TokenClassificationHead {
    output: Linear,
    dropout: f64,
}

impl TokenClassificationHead {
    /// Registers the map, whose parameters begin with `name`.
    pub fn new(registry: &mut Registry, config: &ModelConfig, name: &str, num_labels: usize) -> Self {
        registry.enter(Part::Head);
        let shape = &config.encoder;
        Self {
            output: Linear::new(registry, name, shape.hidden_size, num_labels),
            dropout: shape.classifier_dropout.unwrap_or(shape.hidden_dropout_prob),
        }
    }

    /// Logits, `[M, labels]`, and what the map took, `[M, D]`.
    fn forward(
        &self,
        hidden_td: &Tensor,
        targets: Targets<'_>,
        ctx: &Context<'_>,
    ) -> Result<(Tensor, Tensor)> {
        let gathered_md = gather_rows::forward(hidden_td, targets.positions)?;
        let dropout = ctx.dropout_at(Site::HeadOutput, self.dropout);
        let input_md = dropout::forward(&gathered_md, targets.keys, dropout.as_ref())?;
        Ok((self.output.forward(&input_md, ctx)?, input_md))
    }
}

impl Head for TokenClassificationHead {
    fn flops(&self, rows: f64) -> f64 {
        rows * self.output.flops()
    }

    fn memory(&self, rows: u64, compute: DType, _on_gpu: bool) -> HeadMemory {
        // The input of the map; what was gathered, the gradients of both, and the logits with their gradient,
        // which are f32.
        let (width, labels) = (self.output.inputs as u64, self.output.outputs as u64);
        let saved = Footprint { values: width, statistics_bytes: 0 };
        let besides = Footprint { values: 3 * width + labels, statistics_bytes: 4 * labels };
        let value_bytes = compute.size_in_bytes() as u64;
        HeadMemory {
            saved_bytes: saved.bytes(rows, value_bytes),
            temporary_bytes: besides.bytes(rows, value_bytes),
        }
    }

    fn logits(&self, hidden_td: &Tensor, targets: Targets<'_>, ctx: &Context<'_>) -> Result<Tensor> {
        Ok(self.forward(hidden_td, targets, ctx)?.0)
    }

    fn loss(&self, hidden_td: &Tensor, targets: Targets<'_>, ctx: &Context<'_>) -> Result<Tensor> {
        Ok(cross_entropy::forward(&self.logits(hidden_td, targets, ctx)?, targets.labels)?.totals)
    }

    fn loss_and_gradient(
        &self,
        hidden_td: &Tensor,
        targets: Targets<'_>,
        scale: f32,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<(Tensor, Tensor)> {
        let (logits, input_md) = self.forward(hidden_td, targets, ctx)?;
        let Entropy { totals, log_sum_exp_m } = cross_entropy::forward(&logits, targets.labels)?;
        let d_logits = cross_entropy::backward(logits, targets.labels, &log_sum_exp_m, scale)?;
        let d_input = self.output.backward(&d_logits, &input_md, ctx, gradients)?;
        let dropout = ctx.dropout_at(Site::HeadOutput, self.dropout);
        let d_gathered = dropout::backward(&d_input, targets.keys, dropout.as_ref())?;
        gradients.left(ctx.pass, Part::Head)?;
        Ok((totals, gather_rows::backward(&d_gathered, targets.positions, hidden_td.dim(0)?)?))
    }
}
