//! A discriminator used alone: predicts which tokens of a text were replaced.

use std::path::{Path, PathBuf};

use anyhow::Result;
use candle_core::Device;
use serde_json::json;

use crate::tasks::finite::require_finite;
use crate::tasks::inputs::Inputs;
use crate::tasks::labelled::{InputFile, InputText};
use crate::tasks::trained::{Answers, Evaluation, Scored, Trained};
use base::error::Problem;
use data::batches::Batch;
use data::tokenizer::Tokenizer;
use model::interop::read_folder;
use model::layers::Context;
use model::models::{Blueprint, Model, ReplacedTokenHead};

/// A discriminator and its tokenizer.
pub struct Discriminator {
    path: PathBuf,
    model: Model<ReplacedTokenHead>,
    tokenizer: Tokenizer,
}

/// A token of a text, with the probability that it was replaced.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenPrediction {
    /// The token as text, with its leading space if it has one.
    pub token: String,
    /// Probability that the token was replaced.
    pub replaced: f64,
}

impl Discriminator {
    /// Loads a model folder in the Hugging Face layout.
    pub fn load(path: &Path, device: &Device) -> Result<Self> {
        let folder = read_folder(path)?;
        let Some(names) = folder.config.family.replaced_tokens else {
            return Err(Problem::new("holds no discriminator").at(path.display()).into());
        };
        let tokenizer = Tokenizer::load(&folder.path)?;
        let model = Blueprint::replaced_tokens(&folder.config, names).zeros(device)?;
        folder.fill(&model.parameters, false)?;
        Ok(Self { path: path.to_path_buf(), model, tokenizer })
    }

    /// Passes the probability of each token of a text being replaced to `answers`.
    pub fn answer(&self, text: &InputText, answers: &mut dyn Answers) -> Result<()> {
        let predictions = self.predict_tokens(&text.texts.0, &text.place)?;
        let (tokens, replaced): (Vec<String>, Vec<f64>) =
            predictions.into_iter().map(|prediction| (prediction.token, prediction.replaced)).unzip();
        answers.answer(json!({"text": text.texts.0, "tokens": tokens, "replaced": replaced}), text)
    }

    /// Predicts for each token of a text if it was replaced; `place` names the text in errors.
    pub fn predict_tokens(&self, text: &str, place: &str) -> Result<Vec<TokenPrediction>> {
        let frame = self.tokenizer.framing().single;
        let text = self.tokenizer.encode(text)?;
        let ids = frame.around(&text);
        let longest = self.longest();
        if ids.len() > longest {
            return Err(Problem::new(format!("has {} tokens, the model takes {longest}", ids.len()))
                .at(place)
                .hint("shorten the text")
                .into());
        }
        let batch = Batch::of_segment(ids, Vec::new());
        let logits = self.logits(&batch)?;
        require_finite(&[&logits], |_| place.to_string())?;
        let mut predictions = Vec::with_capacity(text.len());
        for (id, logit) in batch.ids.iter().zip(&logits).skip(frame.before.len()).take(text.len()) {
            let token = self.tokenizer.decode(&[*id], false)?;
            let replaced = 1.0 / (1.0 + f64::from(-logit).exp());
            predictions.push(TokenPrediction { token, replaced });
        }
        Ok(predictions)
    }

    /// Returns the logit of each token of `batch` being replaced, `[T]`.
    pub fn logits(&self, batch: &Batch) -> Result<Vec<f32>> {
        let Model { config, encoder, head, parameters } = &self.model;
        let inputs = Inputs::new(batch, config, parameters.flat().device(), false)?;
        let ctx = Context { parameters, rows: inputs.rows(), pass: None };
        let hidden_td = encoder.infer(inputs.tokens(), None, &ctx)?;
        Ok(head.logits(&hidden_td, &ctx)?.to_device(&Device::Cpu)?.to_vec1::<f32>()?)
    }

    /// The tokenizer of the model.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The longest sequence that the model takes, in tokens.
    pub fn longest(&self) -> usize {
        self.model.config.max_sequence_length()
    }
}

impl Trained for Discriminator {
    fn evaluate(&self, _: &Evaluation<'_>) -> Result<Scored> {
        let message = "holds a discriminator, whose replaced tokens a generator must draw";
        let hint = "name the folder that holds both, in `generator/` and `discriminator/`";
        Err(Problem::new(message).at(self.path.display()).hint(hint).into())
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
