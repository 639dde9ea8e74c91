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
use crate::ops::cross_entropy;
use crate::tasks::Loss;
use crate::tasks::Task;
use crate::tasks::mlm::context;
use crate::tasks::mlm::input;
use crate::tasks::mlm::mean_length;

/// The task and its model.
#[derive(Debug)]
pub struct Classify {
    /// Encoder and classification head.
    pub model: Model<ClassificationHead>,
}

impl Task for Classify {
    fn accumulate(&self, batch: &Batch, dropout: DropoutSeed, gradients: &Gradients) -> Result<Loss> {
        let Model { encoder, head, parameters, .. } = &self.model;
        let ctx = context(parameters, batch, Some(dropout));
        let (hidden_td, saved) = encoder.forward(input(batch), &ctx)?;
        let (logits, head_saved) = head.forward(&hidden_td, &batch.label_positions, &ctx)?;
        let entropy = cross_entropy::forward(&logits, &batch.labels)?;
        let d_logits = cross_entropy::backward(logits, &batch.labels, &entropy.log_sum_exp, 1.0)?;
        let d_hidden = head.backward(&d_logits, &batch.label_positions, batch.num_tokens(), &head_saved, &ctx, gradients)?;
        encoder.backward(d_hidden, input(batch), saved, &ctx, gradients)?;
        Ok(Loss { sum: entropy.loss_sum, count: batch.num_labels(), correct: entropy.correct })
    }

    fn logits(&self, batch: &Batch) -> Result<Tensor> {
        let ctx = context(&self.model.parameters, batch, None);
        let (hidden_td, _) = self.model.encoder.forward(input(batch), &ctx)?;
        Ok(self.model.head.forward(&hidden_td, &batch.label_positions, &ctx)?.0)
    }

    fn parameters(&self) -> &Parameters {
        &self.model.parameters
    }

    fn flops(&self, batch: &Batch) -> f64 {
        // The head's own products are a few thousandths of the encoder's; without a decoder nothing is masked.
        flops::masked_lm_step(&self.model.config, batch.num_tokens() as f64, mean_length(batch), 0.0)
    }
}
