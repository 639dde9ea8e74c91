//! The folder of a run, with a generator and a discriminator that can both be used.

use std::path::{Path, PathBuf};

use anyhow::Result;
use candle_core::Device;

use crate::tasks::Task;
use crate::tasks::labelled::InputFile;
use crate::tasks::masked_lm::MaskFiller;
use crate::tasks::pretraining::corpus::PREDICTED_TOKENS;
use crate::tasks::pretraining::{Pretrained, scored};
use crate::tasks::replaced_token_detection::scores::finds_nothing;
use crate::tasks::replaced_token_detection::{Discriminator, ReplacedTokenDetection};
use crate::tasks::trained::{Answers, Evaluation, Scored, Trained, percent};
use model::interop::{DISCRIMINATOR, GENERATOR};

/// Both models of a run.
pub struct PairFolder {
    path: PathBuf,
    device: Device,
}

impl PairFolder {
    /// The folder at `path`. Its models are loaded only when they are used.
    pub fn new(path: &Path, device: &Device) -> Self {
        Self { path: path.to_path_buf(), device: device.clone() }
    }
}

impl Trained for PairFolder {
    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<Scored> {
        let (task, tokenizer) = ReplacedTokenDetection::load(&self.path, &self.device)?;
        let mut scores = Scored::default();
        let (losses, _) = scored::losses(evaluation, &task, &tokenizer, &mut scores)?;
        let predicted = losses.first().map_or(0, |masked| masked.count);
        scores.add(PREDICTED_TOKENS, predicted, "tokens predicted", predicted);
        for (name, value) in ReplacedTokenDetection::scores(task.terms(), &losses) {
            let is_share = !name.ends_with("loss");
            scores.add_measured(&name, value, &name.replace('_', " "), |value| {
                if is_share { percent(value) } else { format!("{value:.4}") }
            });
            scores.warnings.extend(finds_nothing(&name, value));
        }
        Ok(scores)
    }

    /// Passes a text with masks to the generator, any other to the discriminator.
    fn predict(&self, input: &InputFile<'_>, _: usize, answers: &mut dyn Answers) -> Result<()> {
        let generator = MaskFiller::load(&self.path.join(GENERATOR), &self.device)?;
        let discriminator = Discriminator::load(&self.path.join(DISCRIMINATOR), &self.device)?;
        let place = self.path.display();
        answers.note(&format!(
            "note: {place}: `{GENERATOR}` fills in the masks of a text, `{DISCRIMINATOR}` tells replaced tokens \
             where there are none"
        ));
        for text in input.texts()? {
            let text = text?;
            if generator.is_masked(&text.texts.0)? {
                generator.answer(&text, answers)?;
            } else {
                discriminator.answer(&text, answers)?;
            }
        }
        Ok(())
    }
}
