//! Sequence classification: cross-entropy of the label of each segment.

use candle_core::Result;
use candle_core::Tensor;

use crate::batches::Batch;
use crate::layers::Gradients;
use crate::layers::Parameters;
use crate::layers::context::DropoutSeed;
use crate::models::ClassificationHead;
use crate::models::Model;
use crate::models::flops;
use crate::tasks::Loss;
use crate::tasks::PendingLoss;
use crate::tasks::Task;
use crate::tasks::supervised;

/// The task and its model.
#[derive(Debug)]
pub struct Classify {
    /// Encoder and classification head.
    pub model: Model<ClassificationHead>,
}

impl Task for Classify {
    fn accumulate(
        &self,
        batch: &Batch,
        dropout: DropoutSeed,
        scale: f32,
        gradients: &Gradients,
    ) -> Result<PendingLoss> {
        supervised::accumulate(&self.model, batch, dropout, scale, gradients)
    }

    fn logits(&self, batch: &Batch) -> Result<Tensor> {
        supervised::logits(&self.model, batch)
    }

    fn evaluate(&self, batch: &Batch) -> Result<Loss> {
        supervised::evaluate(&self.model, batch)
    }

    fn parameters(&self) -> &Parameters {
        &self.model.parameters
    }

    fn flops(&self, batch: &Batch) -> f64 {
        // The head's own products are a few thousandths of the encoder's; without a decoder nothing is
        // masked.
        flops::masked_lm_step(
            &self.model.config,
            batch.num_tokens() as f64,
            supervised::mean_length(batch),
            0.0,
        )
    }
}
