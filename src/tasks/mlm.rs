//! Masked language modelling: cross-entropy of the original tokens at the masked positions.

use std::path::Path;

use candle_core::Device;
use candle_core::Result;
use candle_core::Tensor;

use crate::batches::Batch;
use crate::interop::read_folder;
use crate::layers::Gradients;
use crate::layers::Parameters;
use crate::layers::context::DropoutSeed;
use crate::models::MaskedLmHead;
use crate::models::Model;
use crate::models::flops;
use crate::tasks::Loss;
use crate::tasks::PendingLoss;
use crate::tasks::Task;
use crate::tasks::pretrained;
use crate::tasks::supervised;
use crate::tokenizer::Tokenizer;

/// The task and its model.
#[derive(Debug)]
pub struct MaskedLm {
    /// Encoder and masked-LM head.
    pub model: Model<MaskedLmHead>,
}

impl MaskedLm {
    /// Loads a model folder in the Hugging Face layout, with its tokenizer.
    pub fn load(path: &Path, device: &Device) -> anyhow::Result<(Self, Tokenizer)> {
        let folder = read_folder(path)?;
        let tokenizer = Tokenizer::load(path)?;
        let model = Model::masked_lm(&folder.config, 0, device)?;
        pretrained::fill(&model.parameters, &folder, &path.display().to_string())?;
        Ok((Self { model }, tokenizer))
    }
}

impl Task for MaskedLm {
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
        flops::masked_lm_step(
            &self.model.config,
            batch.num_tokens() as f64,
            supervised::mean_length(batch),
            batch.num_labels() as f64,
        )
    }
}
