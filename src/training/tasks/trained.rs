//! The interface of a trained model for `evaluate` and `predict`.

use std::fmt::Display;
use std::path::Path;

use anyhow::Result;
use candle_core::{Device, Tensor};
use serde_json::{Map, Value};

use crate::tasks::Task;
use crate::tasks::labelled::{
    BadRows, Columns, Example, InputFile, InputText, SentenceColumns, Tagging, read_examples_skipping,
};
use base::error::Problem;
use base::fs;
use base::scores::measured;
use config::{CleaningConfig, OnBadRecord, TagScheme};
use data::batches::Batch;
use data::records::RowFormat;
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
    /// Handling of a row or sentence that cannot be read.
    pub on_bad_record: OnBadRecord,
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

    /// Returns an error if the user gave a flag for labels, pairs or words that is not among `used`, the
    /// flags with an effect on the score of `model`, such as "a sequence classifier".
    pub fn refuse_all_but(&self, used: &[&str], model: &str) -> Result<()> {
        let Self { columns, tagging, .. } = self;
        let usual = SentenceColumns::default();
        let flags = [
            ("--text-pair-column", columns.text_pair.is_some()),
            ("--label-column", columns.label.is_some()),
            ("--label-separator", columns.label_separator.is_some()),
            ("--labels", !self.labels.is_empty()),
            ("--token-column", tagging.columns.token != usual.token),
            ("--tag-column", tagging.columns.tag != usual.tag),
            ("--tag-scheme", tagging.scheme != TagScheme::Auto),
            ("--strict", tagging.strict),
            ("--on-bad-record", self.on_bad_record != OnBadRecord::Fail),
        ];
        match flags.iter().find(|(flag, is_given)| *is_given && !used.contains(flag)) {
            Some((flag, _)) => Err(Problem::usage(format!("has no effect on the score of {model}"))
                .at(flag)
                .hint("leave it out, or name a model that `finetune` made for such data")
                .into()),
            None => Ok(()),
        }
    }

    /// Reads labelled texts, and returns a note if rows were left out.
    pub(super) fn examples(&self, columns: &Columns<'_>) -> Result<(Vec<Example>, Vec<String>)> {
        let mut bad_rows = BadRows::new(self.on_bad_record, "row");
        let examples = read_examples_skipping(self.data, columns, &mut bad_rows)?;
        Ok((examples, bad_rows.note(self.data).into_iter().collect()))
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

/// Returns an error for a file of JSON lines whose name says that it is in another format. `others` are
/// extensions of formats that can be written, too.
pub fn require_json_lines(flag: &str, path: &Path, others: &[&str]) -> Result<(), Problem> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let is_json =
        fs::without_compression(path) == path && matches!(RowFormat::of(path), None | Some(RowFormat::Jsonl));
    if is_json || extension.is_some_and(|extension| others.contains(&extension)) {
        return Ok(());
    }
    let message = format!("{}: has the name of another format, and JSON lines are written", path.display());
    Err(Problem::usage(message).at(flag).hint("name it `.jsonl`"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_json_lines_have_no_name_of_another_format() {
        for name in ["p.jsonl", "p.json", "p.txt", "p", "p.conll"] {
            require_json_lines("--predictions", Path::new(name), &["conll"]).expect(name);
        }
        for name in ["p.csv", "p.tsv", "p.parquet", "p.conll", "p.jsonl.gz"] {
            let problem = require_json_lines("--predictions", Path::new(name), &[]).expect_err(name);
            let start = format!("--predictions: {name}: has the name of another format");
            assert!(problem.to_string().starts_with(&start), "{problem}");
        }
    }
}
