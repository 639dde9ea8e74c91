//! The interface of a trained model for `evaluate` and `predict`.

use std::fmt::Display;
use std::path::Path;

use anyhow::Result;
use candle_core::{Device, Tensor};
use serde_json::{Map, Value};

use crate::tasks::Task;
use crate::tasks::labelled::{Columns, InputFile, InputText, Tagging};
use base::error::Problem;
use base::fs;
use base::scores::measured;
use config::CleaningConfig;
use data::batches::Batch;
use model::checkpoint::write_tensors;

/// A model with its tokenizer, for any task.
pub trait Trained {
    /// Scores the model on a file.
    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<Scored>;

    /// Passes the model's answer for each text of `input` to `answers`; computes at most `batch_size` texts
    /// at a time.
    fn predict(&self, input: &InputFile<'_>, batch_size: usize, answers: &mut dyn Answers) -> Result<()>;

    /// Returns notes about tokenizer files that were ignored or changed.
    fn notes(&self) -> &[String] {
        &[]
    }
}

/// Settings of an evaluation.
#[derive(Debug, Clone, Copy)]
pub struct Evaluation<'a> {
    /// File with labelled examples or text, depending on the model.
    pub data: &'a Path,
    /// Columns of the file to read.
    pub columns: Columns<'a>,
    /// Names of the classes 0, 1, ... for files whose tags or labels are numbers; if empty, numbers are an
    /// error.
    pub labels: &'a [String],
    /// How the words and tags of sentences are read.
    pub tagging: Tagging<'a>,
    /// File for the model's prediction for every example.
    pub predictions: Option<&'a Path>,
    /// Cleaning of the text for a language model.
    pub cleaning: &'a CleaningConfig,
    /// Number of texts in a batch.
    pub batch_size: usize,
    /// File for the first batch and its logits.
    pub dump_logits: Option<&'a Path>,
}

impl Evaluation<'_> {
    /// Returns an error if a file for predictions was requested, for a model that makes no predictions for
    /// examples.
    pub fn refuse_predictions(&self) -> Result<()> {
        let Some(path) = self.predictions else { return Ok(()) };
        Err(Problem::usage("the model tells classes of nothing, so there are no predictions to write")
            .at(path.display())
            .hint("`--predictions` is for models that `finetune` made")
            .into())
    }

    /// Place of an example in the data, as errors print it; `number` starts at 0.
    pub fn example(&self, number: usize) -> String {
        format!("{}: example {}", self.data.display(), number + 1)
    }

    /// Writes the first batch and its logits if that was requested, to compare another program with this one.
    pub fn dump_logits(&self, task: &dyn Task, batch: &Batch) -> Result<()> {
        let Some(path) = self.dump_logits else { return Ok(()) };
        let tensors = vec![
            named_tensor("ids", &batch.ids)?,
            named_tensor("token_type_ids", &batch.token_type_ids)?,
            named_tensor("position_ids", &batch.position_ids)?,
            named_tensor("cu_seqlens", &batch.cu_seqlens)?,
            named_tensor("label_positions", &batch.label_positions)?,
            named_tensor("labels", &batch.labels)?,
            ("logits".to_string(), task.logits(batch)?.to_device(&Device::Cpu)?),
        ];
        let bytes =
            tensors.iter().map(|(_, tensor)| (tensor.elem_count() * tensor.dtype().size_in_bytes()) as u64);
        fs::require_space(path, bytes.sum(), "the logits do not fit")?;
        fs::write_atomic(path, |file| write_tensors(file, &tensors))
    }
}

fn named_tensor(name: &str, values: &[u32]) -> Result<(String, Tensor)> {
    Ok((name.to_string(), Tensor::new(values, &Device::Cpu)?))
}

/// Results of an evaluation, for people and for programs.
#[derive(Debug, Default)]
pub struct Scored {
    /// Lines for people.
    pub lines: Vec<String>,
    /// Scores for programs, with the names of the Trainer of transformers.
    pub json: Map<String, Value>,
    /// Warnings about the model, shown with either form.
    pub warnings: Vec<String>,
}

/// The warning about a model that gives every example the same answer; `how` describes that answer.
pub fn learnt_nothing(how: &str) -> String {
    format!("{how}: the model has learnt nothing that shows; train longer, or with another learning rate")
}

impl Scored {
    /// Adds a warning if the model gives all examples the same answer, which `how` describes.
    pub fn warn_if_uniform(&mut self, how: Option<String>) {
        self.warnings.extend(how.map(|how| learnt_nothing(&how)));
    }

    /// Adds a score: `key` is its name in the Trainer of transformers, `name` its name in the line for
    /// people.
    pub fn add(&mut self, key: &str, value: impl Into<Value>, name: &str, text: impl Display) {
        self.json.insert(format!("eval_{key}"), value.into());
        self.lines.push(format!("{name:20} {text}"));
    }

    /// Adds a score that may not have been measured (NaN): `null` for programs, a phrase for people.
    pub fn add_measured(&mut self, key: &str, value: f64, name: &str, show: impl FnOnce(f64) -> String) {
        self.add(key, value, name, measured(value, show));
    }
}

/// Formats a share in percent.
pub fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// Formats a number with four digits.
pub fn four_digits(value: f64) -> String {
    format!("{value:.4}")
}

/// Receives the answers of a model.
pub trait Answers {
    /// Receives the answer for a text, a JSON object.
    fn answer(&mut self, found: Value, text: &InputText) -> Result<()>;

    /// Receives a note for the user.
    fn note(&mut self, text: &str);
}
