//! A trained model, as `evaluate` and `predict` use it.

use std::fmt::Display;
use std::path::Path;

use anyhow::Result;
use candle_core::Device;
use candle_core::Tensor;
use serde_json::Map;
use serde_json::Value;

use crate::batches::Batch;
use crate::checkpoint::write_tensors;
use crate::config::CleaningConfig;
use crate::error::Problem;
use crate::fs;
use crate::scores::Outcomes;
use crate::scores::measured;
use crate::tasks::Task;
use crate::tasks::labelled::Columns;
use crate::tasks::labelled::InputFile;
use crate::tasks::labelled::InputText;
use crate::tasks::labelled::Tagging;

/// A model with its tokenizer, whatever it was trained for.
pub trait Trained {
    /// Scores of what it says of a file.
    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<Scored>;

    /// Answers each text of `input`, at most `batch_size` at a time.
    fn predict(&self, input: &InputFile<'_>, batch_size: usize, answers: &mut dyn Answers) -> Result<()>;

    /// Notes about the tokenizer's files that were ignored or changed.
    fn notes(&self) -> &[String] {
        &[]
    }
}

/// What is evaluated, and how.
#[derive(Debug, Clone, Copy)]
pub struct Evaluation<'a> {
    /// Labelled examples or text, as the model needs.
    pub data: &'a Path,
    /// Which columns of it to read.
    pub columns: Columns<'a>,
    /// The names that numbers in the place of tags or labels stand for, from 0; without any they are refused.
    pub labels: &'a [String],
    /// How tagged words are read.
    pub tagging: Tagging<'a>,
    /// Where what the model says of every example is written.
    pub predictions: Option<&'a Path>,
    /// How text for a language model is cleaned.
    pub cleaning: &'a CleaningConfig,
    /// Texts in one batch.
    pub batch_size: usize,
    /// Where the first batch and its logits are written.
    pub dump_logits: Option<&'a Path>,
}

impl Evaluation<'_> {
    /// Refuses to write predictions, for a model that has none to tell of an example.
    pub fn refuse_predictions(&self) -> Result<()> {
        let Some(path) = self.predictions else { return Ok(()) };
        Err(Problem::usage("the model tells classes of nothing, so there are no predictions to write")
            .at(path.display())
            .hint("`--predictions` is for models that `finetune` made")
            .into())
    }

    /// An example of the data by its number from 0, as errors call it.
    pub fn example(&self, number: usize) -> String {
        format!("{}: example {}", self.data.display(), number + 1)
    }

    /// Writes the first batch and its logits where that was asked for, so that another program can be held
    /// against them.
    pub fn dump_logits(&self, task: &dyn Task, batch: &Batch) -> Result<()> {
        let Some(path) = self.dump_logits else { return Ok(()) };
        let ids =
            |name: &str, values: &[u32]| anyhow::Ok((name.to_string(), Tensor::new(values, &Device::Cpu)?));
        let tensors = vec![
            ids("ids", &batch.ids)?,
            ids("token_type_ids", &batch.token_type_ids)?,
            ids("position_ids", &batch.position_ids)?,
            ids("cu_seqlens", &batch.cu_seqlens)?,
            ids("label_positions", &batch.label_positions)?,
            ids("labels", &batch.labels)?,
            ("logits".to_string(), task.logits(batch)?.to_device(&Device::Cpu)?),
        ];
        let bytes =
            tensors.iter().map(|(_, tensor)| (tensor.elem_count() * tensor.dtype().size_in_bytes()) as u64);
        fs::require_space(path, bytes.sum(), "the logits do not fit")?;
        fs::write_atomic(path, |file| write_tensors(file, &tensors))
    }
}

/// What an evaluation found, for people and for programs.
#[derive(Debug, Default)]
pub struct Scored {
    /// For people.
    pub lines: Vec<String>,
    /// By the names that the Trainer gives them.
    pub json: Map<String, Value>,
    /// What a user should know of the model, whichever of the two is shown.
    pub warnings: Vec<String>,
}

/// The warning about a model that gives every example the same answer; `how` describes that.
pub fn learnt_nothing(how: &str) -> String {
    format!("{how}: the model has learnt nothing that shows; train longer, or with another learning rate")
}

impl Scored {
    /// Warns of a model that gives every example the same answer.
    pub fn warn_if_uniform(&mut self, outcomes: &Outcomes) {
        self.warnings.extend(outcomes.uniform_answers().map(|how| learnt_nothing(&how)));
    }

    /// A number by the name that the Trainer gives it, and a line with a name of its own.
    pub fn add(&mut self, key: &str, value: impl Into<Value>, name: &str, text: impl Display) {
        self.json.insert(format!("eval_{key}"), value.into());
        self.lines.push(format!("{name:20} {text}"));
    }

    /// As [`Self::add`] for a score that may not have been measured: null, and said in words.
    pub fn add_measured(&mut self, key: &str, value: f64, name: &str, show: impl FnOnce(f64) -> String) {
        self.add(key, value, name, measured(value, show));
    }
}

/// A share in percent.
pub fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// Takes what a model says of texts.
pub trait Answers {
    /// What was found of a text, a JSON object.
    fn answer(&mut self, found: Value, text: &InputText) -> Result<()>;

    /// What a user should know besides.
    fn note(&mut self, text: &str);
}
