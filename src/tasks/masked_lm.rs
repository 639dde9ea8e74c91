//! Masked language modelling: cross-entropy of the original tokens at the masked positions.

use std::path::Path;

use anyhow::Result;
use candle_core::Device;

use crate::config::PretrainConfig;
use crate::config::PretrainTask;
use crate::families::HeadKind;
use crate::families::ModelConfig;
use crate::interop::HubConfig;
use crate::interop::read_folder;
use crate::models::Blueprint;
use crate::models::MaskedLmHead;
use crate::models::Model;
use crate::models::memory::Outline;
use crate::tasks::Loss;
use crate::tasks::Supervised;
use crate::tasks::Term;
use crate::tasks::pretraining::Pretrained;
use crate::tasks::pretraining::origin::OfFolders;
use crate::tasks::run::ModelFolder;
use crate::tasks::run::Scores;
use crate::tasks::run::Setting;
use crate::tokenizer::Tokenizer;

/// The task and its model.
pub type MaskedLm = Supervised<MaskedLmHead>;

impl MaskedLm {
    /// Loads a model folder in the Hugging Face layout, with its tokenizer.
    pub fn load(path: &Path, device: &Device) -> Result<(Self, Tokenizer)> {
        let folder = read_folder(path)?;
        let tokenizer = Tokenizer::load(&folder.path)?;
        let model = Model::masked_lm(&folder.config, 0, device)?;
        folder.fill(&model.parameters, false)?;
        Ok((Self { model }, tokenizer))
    }
}

impl Pretrained for MaskedLm {
    const NAME: PretrainTask = PretrainTask::MaskedLm;

    fn outline(_: &PretrainConfig, model: &ModelConfig) -> Result<Box<dyn Outline>> {
        Ok(Box::new(Blueprint::masked_lm(model)))
    }

    fn build(_: &PretrainConfig, model: &ModelConfig, setting: Setting<'_>) -> Result<Self> {
        let Setting { training, machine, seed, .. } = setting;
        let mut model = Blueprint::masked_lm(model).initialise(seed, &machine.device)?;
        model.encoder.gradient_checkpointing = training.gradient_checkpointing;
        Ok(Self { model }.computing_in(machine.policy.compute)?)
    }

    fn of_folders(&self) -> OfFolders {
        OfFolders { model: self.model.parameters.layout().own_names(), generator: Vec::new() }
    }

    fn folders(&self, tokenizer: &Tokenizer) -> Vec<ModelFolder> {
        let hub = HubConfig::new(self.model.config.clone(), HeadKind::MaskedLm, None);
        vec![ModelFolder::whole(&hub, tokenizer, self.model.parameters.layout())]
    }

    /// Trainer's names: `loss`, `perplexity`, `accuracy`.
    fn scores(_: &[Term], losses: &[Loss]) -> Scores {
        let loss = losses.first().copied().unwrap_or_default();
        vec![
            ("loss".into(), loss.mean()),
            ("perplexity".into(), loss.mean().exp()),
            ("accuracy".into(), loss.accuracy()),
        ]
    }

    fn longest(&self) -> usize {
        self.model.config.max_sequence_length()
    }
}
