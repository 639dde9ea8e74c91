//! Masked language modelling: cross-entropy of the original tokens at the masked positions.

use std::path::Path;

use candle_core::Device;
use candle_core::Result;
use candle_core::Tensor;

use crate::batches::Batch;
use crate::interop::read_folder;
use crate::layers::Context;
use crate::layers::Gradients;
use crate::layers::Parameters;
use crate::layers::Rows;
use crate::layers::context::DropoutSeed;
use crate::models::Input;
use crate::models::MaskedLmHead;
use crate::models::Model;
use crate::models::flops;
use crate::ops::cross_entropy;
use crate::tasks::Loss;
use crate::tasks::Task;
use crate::tasks::pretrained;
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
    fn accumulate(&self, batch: &Batch, dropout: DropoutSeed, gradients: &Gradients) -> Result<Loss> {
        let Model { encoder, head, parameters, .. } = &self.model;
        if batch.num_labels() == 0 {
            return Ok(Loss::default());
        }
        let ctx = context(parameters, batch, Some(dropout));
        let (hidden_td, saved) = encoder.forward(input(batch), &ctx)?;
        let (logits_mv, head_saved) = head.forward(&hidden_td, &batch.label_positions, &ctx)?;
        let entropy = cross_entropy::forward(&logits_mv, &batch.labels)?;
        let d_logits = cross_entropy::backward(logits_mv, &batch.labels, &entropy.log_sum_exp, 1.0)?;
        let d_hidden = head.backward(&d_logits, &batch.label_positions, batch.num_tokens(), &head_saved, &ctx, gradients)?;
        drop((d_logits, head_saved, hidden_td));
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
        flops::masked_lm_step(&self.model.config, batch.num_tokens() as f64, mean_length(batch), batch.num_labels() as f64)
    }
}

/// Length of the segment that a token attends to, averaged over tokens.
pub(crate) fn mean_length(batch: &Batch) -> f64 {
    let squares: f64 = batch.cu_seqlens.windows(2).map(|w| f64::from(w[1] - w[0]).powi(2)).sum();
    squares / batch.num_tokens().max(1) as f64
}

pub(crate) fn context<'a>(parameters: &'a Parameters, batch: &'a Batch, dropout: Option<DropoutSeed>) -> Context<'a> {
    Context { parameters, rows: Rows { cu_seqlens: &batch.cu_seqlens, token_keys: &batch.token_keys }, dropout }
}

pub(crate) fn input(batch: &Batch) -> Input<'_> {
    Input { ids: &batch.ids, position_ids: &batch.position_ids, token_type_ids: &batch.token_type_ids }
}
