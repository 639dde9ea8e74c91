//! Masked language modelling: cross-entropy of the original tokens at the masked positions.

use std::path::Path;

use anyhow::Result;
use candle_core::Device;
use serde_json::{Value, json};

use crate::tasks::fill_mask::{Candidate, fill_mask};
use crate::tasks::labelled::{InputFile, InputText};
use crate::tasks::pretraining::corpus::PREDICTED_TOKENS;
use crate::tasks::pretraining::origin::FolderNames;
use crate::tasks::pretraining::{Pretrained, scored};
use crate::tasks::run::{ModelFolder, Scores, Setting};
use crate::tasks::start::refuse_rates_of_layers;
use crate::tasks::trained::{Answers, Evaluation, Scored, Trained, percent};
use crate::tasks::{Loss, Supervised, Term};
use base::families::{HeadKind, ModelConfig};
use config::{PretrainConfig, PretrainTask};
use data::tokenizer::Tokenizer;
use model::interop::{HubConfig, read_folder};
use model::models::memory::Outline;
use model::models::{Blueprint, MaskedLmHead};

/// The task and its model.
pub type MaskedLm = Supervised<MaskedLmHead>;

impl MaskedLm {
    /// Loads a model folder in the Hugging Face layout, with its tokenizer.
    pub fn load(path: &Path, device: &Device) -> Result<(Self, Tokenizer)> {
        let folder = read_folder(path)?;
        let tokenizer = Tokenizer::load(&folder.path)?;
        let model = Blueprint::masked_lm(&folder.config).zeros(device)?;
        folder.fill(&model.parameters, false)?;
        Ok((Self { model }, tokenizer))
    }
}

impl Pretrained for MaskedLm {
    const NAME: PretrainTask = PretrainTask::MaskedLm;
    const HEAD: HeadKind = HeadKind::MaskedLm;
    const SCORES: &'static [&'static str] = &["loss", "perplexity", "accuracy"];

    fn outline(config: &PretrainConfig, model: &ModelConfig) -> Result<Box<dyn Outline>> {
        let blueprint = Blueprint::masked_lm(model);
        refuse_rates_of_layers(&config.training, &blueprint.encoder)?;
        Ok(Box::new(blueprint))
    }

    fn build(_: &PretrainConfig, model: &ModelConfig, setting: Setting<'_>) -> Result<Self> {
        let Setting { training, machine, seed, is_beginning, .. } = setting;
        let blueprint = Blueprint::masked_lm(model);
        let mut model = if is_beginning {
            blueprint.initialise(seed, &machine.device)?
        } else {
            blueprint.zeros(&machine.device)?
        };
        model.encoder.gradient_checkpointing = training.gradient_checkpointing.is_on();
        Ok(Self { model }.computing_in(machine.policy.compute)?)
    }

    fn folder_names(&self) -> FolderNames {
        FolderNames { model: self.model.parameters.layout().own_names(), generator: Vec::new() }
    }

    fn folders(&self, tokenizer: &Tokenizer) -> Vec<ModelFolder> {
        let hub = HubConfig::new(self.model.config.clone(), HeadKind::MaskedLm, None);
        vec![ModelFolder::whole(&hub, tokenizer, self.model.parameters.layout())]
    }

    /// Returns `loss`, `perplexity` and `accuracy`, the names of the Trainer of transformers.
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

    fn open(path: &Path, device: &Device) -> Result<Box<dyn Trained>> {
        Ok(Box::new(MaskFiller::load(path, device)?))
    }
}

/// A masked language model with its tokenizer.
pub struct MaskFiller {
    task: MaskedLm,
    tokenizer: Tokenizer,
}

impl MaskFiller {
    /// Loads a model folder in the Hugging Face layout.
    pub fn load(path: &Path, device: &Device) -> Result<Self> {
        let (task, tokenizer) = MaskedLm::load(path, device)?;
        Ok(Self { task, tokenizer })
    }

    /// Returns true if a text contains a mask token.
    pub fn is_masked(&self, text: &str) -> Result<bool> {
        let mask = self.tokenizer.token(self.tokenizer.special().mask()?);
        Ok(mask.is_some_and(|mask| text.contains(&mask)))
    }

    /// Passes the best candidates for each mask token of a text to `answers`.
    pub fn answer(&self, text: &InputText, answers: &mut dyn Answers) -> Result<()> {
        let Self { task, tokenizer } = self;
        // An empty line gets an answer, too, so that answers match lines.
        if text.texts.0.trim().is_empty() {
            return answers.answer(json!({"text": text.texts.0, "masks": []}), text);
        }
        let masks = fill_mask(task, task.longest(), tokenizer, &text.texts.0, &text.place)?;
        let masks: Vec<Vec<Value>> =
            masks.iter().map(|candidates| candidates.iter().map(candidate_json).collect()).collect();
        answers.answer(json!({"text": text.texts.0, "masks": masks}), text)
    }
}

fn candidate_json(candidate: &Candidate) -> Value {
    json!({"token": candidate.token, "id": candidate.id, "score": candidate.probability})
}

impl Trained for MaskFiller {
    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<Scored> {
        let mut scores = Scored::default();
        let (losses, entropy) = scored::losses(evaluation, &self.task, &self.tokenizer, &mut scores)?;
        let masked = losses.first().copied().unwrap_or_default();
        let loss = masked.mean();
        let accuracy = masked.accuracy();
        scores.add(PREDICTED_TOKENS, masked.count, "tokens predicted", masked.count);
        scores.add_measured("loss", loss, "loss", |loss| format!("{loss:.4}"));
        scores.add_measured("perplexity", loss.exp(), "perplexity", |value| format!("{value:.2}"));
        scores.add_measured("accuracy", accuracy, "masked accuracy", percent);
        // Computed from the scored file itself, so no unigram baseline from other text can be better.
        let text = format!("{entropy:.4} (entropy of this file's own token frequencies)");
        scores.add("own_unigram_entropy", entropy, "unigram entropy", text);
        Ok(scores)
    }

    fn predict(&self, input: &InputFile<'_>, _: usize, answers: &mut dyn Answers) -> Result<()> {
        for text in input.texts()? {
            self.answer(&text?, answers)?;
        }
        Ok(())
    }

    fn notes(&self) -> &[String] {
        self.tokenizer.notes()
    }
}
