//! The interface of a fine-tuning task: what an example is, what is predicted for it, and how that is scored.
//!
//! [`Input`] is the form of the examples, texts or sentences of words, and the head over them.
//! [`FinetuningTask`] is what one task learns from them. Everything else is shared: `finetuning.rs` is a
//! run, `finetuning/opened.rs` a trained model. `list.rs` lists all tasks.

use std::ops::AddAssign;
use std::path::Path;

use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use serde::Serialize;
use serde_json::Value;

use crate::tasks::examples::{Divided, Set, Sources};
use crate::tasks::labelled::{InputFile, InputText};
use crate::tasks::planned::Lengths;
use crate::tasks::run::{Scores, TargetShare};
use crate::tasks::taught::Teachers;
use crate::tasks::trained::{Evaluation, Scored};
use base::families::{HeadKind, ModelConfig};
use base::quantity::format_count;
use base::scores::{Better, Outcomes};
use config::{ClassifyData, FinetuneConfig, TrainingConfig};
use data::batches::Batch;
use data::tokenizer::Tokenizer;
use model::interop::PretrainedFolder;
use model::models::{Blueprint, Head, Objective};
use ops::sigmoid_cross_entropy::sigmoid;

/// A score column of a report.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Column {
    /// Name of the score in the Trainer of transformers, with `eval_`.
    pub score: &'static str,
    /// Title of the column.
    pub title: &'static str,
    /// Factor of the printed value: 100 for a share printed in percent.
    pub factor: f64,
}

impl Column {
    /// A column of numbers.
    pub const fn plain(score: &'static str, title: &'static str) -> Self {
        Self { score, title, factor: 1.0 }
    }

    /// A column of shares in percent.
    pub const fn percent(score: &'static str, title: &'static str) -> Self {
        Self { score, title, factor: 100.0 }
    }
}

/// A baseline without a neural network that a model has to beat.
#[derive(Debug, Clone, PartialEq)]
pub struct Floor {
    /// Name of the baseline, as reports print it.
    pub name: &'static str,
    /// Its result on each evaluation example.
    pub outcomes: Outcomes,
}

/// The words for a form of examples in plans.
#[derive(Debug, Clone, Copy)]
pub struct PlanWords {
    /// Name of the line about labels.
    pub labels: &'static str,
    /// Name of the line about the longest example.
    pub longest: &'static str,
    /// Name of the line about examples that are too long.
    pub too_long: &'static str,
}

/// A place for which a model predicts something: an example, or a word of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Index of the example in its set.
    pub example: usize,
    /// Index of the word in the example; 0 if the example is predicted as a whole.
    pub word: usize,
}

/// A form of examples, and the head of a model over them.
pub trait Input: 'static {
    /// An example of a labelled file.
    type Row: Clone + Send + Sync;
    /// A sequence of token ids without special tokens.
    type Encoded: Send + Sync;
    /// Adds special tokens, and makes batches.
    type Collator: Copy + Send + Sync;
    /// Counts of unusual examples, such as those that are too long.
    type Unusual: Default + AddAssign;
    /// The prediction for an example.
    type Answer: Clone + Send + Sync;
    /// A row of the input of `predict`.
    type Question;
    /// The head of the model.
    type Head: Head + Send + 'static;

    /// The words for these examples in plans.
    const WORDS: PlanWords;

    /// Number of rows that reach the head.
    const REACH_HEAD: TargetShare;

    /// The model with a head that has this number of outputs.
    fn blueprint(
        config: &ModelConfig,
        outputs: usize,
        objective: Objective,
    ) -> candle_core::Result<Blueprint<Self::Head>>;

    /// Returns the tokenizer of a folder, and a collator for sequences of this length. `config` is that of a
    /// run that starts from the folder; `None` for a trained model.
    fn framing(
        folder: &PretrainedFolder,
        max_seq_length: usize,
        config: Option<&FinetuneConfig>,
    ) -> Result<(Tokenizer, Self::Collator)>;

    /// Shortens the sequences of a trained model to the length of its training, if that is possible.
    fn cut_at(collator: Self::Collator, length: usize) -> Self::Collator;

    /// Tokenizes examples, in order.
    fn encode(
        tokenizer: &Tokenizer,
        collator: &Self::Collator,
        rows: &[Self::Row],
    ) -> Result<(Vec<Self::Encoded>, Self::Unusual)>;

    /// The places that are predicted in a sequence, in the order of the model's outputs.
    fn places(encoded: &Self::Encoded) -> impl Iterator<Item = Place>;

    /// Makes a batch without labels of sequences, which are the rows from `first_row` on of their step's
    /// global batch.
    fn batch(collator: &Self::Collator, encoded: &[&Self::Encoded], first_row: u64) -> Batch;

    /// Returns additional files for the folder of a model.
    fn files(config: &FinetuneConfig) -> Vec<(String, Vec<u8>)>;

    /// The whole text of an example. Examples with the same text are never on both sides of a split.
    fn text(row: &Self::Row) -> String;

    /// The prediction for an example that the model has not seen yet.
    fn unanswered(row: &Self::Row) -> Self::Answer;

    /// Adds the outputs of the model for a word of an example, or for the example.
    fn put(answer: &mut Self::Answer, word: usize, outputs: Vec<f32>);

    /// The lengths of examples.
    fn lengths(rows: &[Self::Row], unusual: &Self::Unusual) -> Lengths;

    /// Describes in a plan what happens to examples that are longer than `length` tokens.
    fn too_long(length: usize) -> String;

    /// Notes on the unusual examples of a set that is called `set`.
    fn notes(
        set: &str,
        encoded: &[Self::Encoded],
        rows: &[Self::Row],
        unusual: &Self::Unusual,
        collator: &Self::Collator,
    ) -> Vec<String>;

    /// Adds the number of examples to the results of an evaluation.
    fn count(rows: &[Self::Row], scored: &mut Scored);

    /// Adds the counts of unusual examples to the results of an evaluation.
    fn count_unusual(unusual: &Self::Unusual, scored: &mut Scored);

    /// The note about unusual examples among `examples` predicted ones.
    fn note_of_predict(examples: usize, unusual: &Self::Unusual) -> Option<String>;

    /// Opens the input of `predict`.
    fn questions(input: &InputFile<'_>) -> Result<Box<dyn Iterator<Item = Result<Self::Question>>>>;

    /// The row of the input.
    fn origin(question: &Self::Question) -> &InputText;

    /// The example to predict.
    fn row(question: &Self::Question) -> Self::Row;
}

/// The type of an example of a task.
pub type Row<T> = <<T as FinetuningTask>::Input as Input>::Row;

/// The type of a prediction of a task.
pub type Answer<T> = <<T as FinetuningTask>::Input as Input>::Answer;

/// The type of a sequence of a task.
pub type Encoded<T> = <<T as FinetuningTask>::Input as Input>::Encoded;

/// The type of the collator of a task.
pub type Collator<T> = <<T as FinetuningTask>::Input as Input>::Collator;

/// The examples of a run, read and checked before anything is trained, once for all seeds.
pub struct Examples<T: FinetuningTask> {
    /// The names of the labels.
    pub target: T,
    /// Training examples, after the subset was selected.
    pub train: Set<Row<T>, T::Gold>,
    /// Evaluation examples.
    pub eval: Set<Row<T>, T::Gold>,
    /// Test examples, if the configuration names a file of them.
    pub test: Option<Set<Row<T>, T::Gold>>,
    /// Notes on the files.
    notes: Vec<String>,
    /// The warning about evaluation texts that are training texts as well.
    warning: Option<String>,
    /// Predictions of teachers for the training examples.
    pub(super) teachers: Teachers,
}

impl<T: FinetuningTask> Examples<T> {
    /// Reads and checks the examples.
    pub fn read(config: &FinetuneConfig) -> Result<Self> {
        let (sources, notes) = T::sources(&config.data)?;
        let target = T::learn(&config.data, &sources.train.all)?;
        let Divided { train, eval, test, warning } = sources.divided(
            config,
            |path, rows| target.gold(path, rows),
            |gold| target.strata(gold),
            T::Input::text,
        )?;
        Ok(Self { target, train, eval, test, notes, warning, teachers: Teachers::default() })
    }

    /// The examples that a run with this seed draws with replacement from each set; `None` unless the
    /// configuration asks for a bootstrap.
    pub fn drawn(&self, config: &FinetuneConfig, seed: u64) -> Option<Self> {
        config.data.bootstrap.then(|| Self {
            target: self.target.clone(),
            train: self.train.drawn(seed, 0),
            eval: self.eval.drawn(seed, 1),
            test: self.test.as_ref().map(|test| test.drawn(seed, 2)),
            notes: Vec::new(),
            warning: None,
            teachers: Teachers::default(),
        })
    }

    /// The same examples with the test examples in the place of the evaluation examples.
    pub fn tested(&self) -> Option<Self> {
        Some(Self {
            target: self.target.clone(),
            train: self.train.clone(),
            eval: self.test.clone()?,
            test: None,
            notes: Vec::new(),
            warning: None,
            teachers: Teachers::default(),
        })
    }

    /// Returns lines that summarise the examples.
    pub fn summary(&self) -> String {
        [&self.notes[..], &self.target.summary(self)].concat().join("\n")
    }

    /// Returns a warning about evaluation texts that are training texts as well.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Text such as "90 training and 30 evaluation examples".
    pub fn sizes(&self) -> String {
        let [train, eval] = [&self.train, &self.eval].map(|set| format_count(set.rows.len() as u64));
        match &self.test {
            Some(test) => {
                let test = format_count(test.rows.len() as u64);
                format!("{train} training, {eval} evaluation and {test} test examples")
            }
            None => format!("{train} training and {eval} evaluation examples"),
        }
    }

    /// Returns the number of training examples.
    pub fn num_train(&self) -> usize {
        self.train.rows.len()
    }

    /// Returns the baselines on these examples that need no neural network, the best one last.
    pub fn floors(&self) -> Vec<Floor> {
        self.target.floors(self)
    }
}

/// Examples with their labels and the predictions for them.
pub struct Judged<'a, T: FinetuningTask> {
    /// The examples.
    pub rows: &'a [Row<T>],
    /// The gold label of each example.
    pub gold: &'a [T::Gold],
    /// The prediction for each example; empty before the first evaluation.
    pub answers: &'a [Answer<T>],
    /// The mean loss.
    pub loss: f64,
}

/// A task that a pretrained encoder is fine-tuned for. The value has the names of the labels.
pub trait FinetuningTask: Sized + Clone + Send + Sync + 'static {
    /// The form of the examples.
    type Input: Input;

    /// The gold label of an example: an id, several ids, numbers, or the ids of words.
    type Gold: Clone + Send + Sync;

    /// The head that the task trains.
    const HEAD: HeadKind;

    /// Name of a model of this task, in errors.
    const MODEL: &'static str;

    /// The score columns of a report, in order.
    const COLUMNS: &'static [Column];

    /// The score by which the better of two runs is chosen, as an evaluation names it.
    const BEST: &'static str;

    /// Files with the predictions for the evaluation examples, in the run's folder.
    const PREDICTIONS: &'static [&'static str] = &["predictions.jsonl"];

    /// Flags of `evaluate` about labels, pairs and words that have an effect on a model of this task.
    const FLAGS: &'static [&'static str];

    /// Reads the files of a run, and returns notes on them.
    fn sources(data: &ClassifyData) -> Result<(Sources<Row<Self>>, Vec<String>)>;

    /// Returns the labels of a run: those of its configuration, else those of the training examples `rows`.
    fn learn(data: &ClassifyData, rows: &[Row<Self>]) -> Result<Self>;

    /// Returns the labels of a trained model, which are stored in the folder at `path`.
    fn of_model(path: &Path, names: Vec<String>) -> Result<Self>;

    /// Reads the file of an evaluation, and returns notes on it.
    fn evaluated(&self, evaluation: &Evaluation<'_>) -> Result<(Vec<Row<Self>>, Vec<String>)>;

    /// Names of the outputs of the model, in order.
    fn names(&self) -> &[String];

    /// The names by which a resumed run recognises its labels.
    fn resumed_names(&self, _data: &ClassifyData) -> Vec<String> {
        self.names().to_vec()
    }

    /// Returns the gold label of each example of a file. A label that is not known is an error.
    fn gold(&self, source: &Path, rows: &[Row<Self>]) -> Result<Vec<Self::Gold>>;

    /// Returns a class for each example. Splits and subsets keep the proportions of these classes.
    fn strata(&self, gold: &[Self::Gold]) -> Vec<u32>;

    /// Adds the labels of a word of an example, or of the example, as the loss reads them.
    fn push_labels(&self, gold: &Self::Gold, word: usize, labels: &mut Vec<u32>);

    /// The probabilities of the labels in an answer, in the order of the labels; nothing if a model of the
    /// task cannot be a teacher.
    fn probabilities(_answer: &Answer<Self>) -> &[f32] {
        &[]
    }

    /// The parts of an example by which a resumed run recognises its examples.
    fn content(row: &Row<Self>) -> impl Serialize;

    /// The loss of training on examples with these labels.
    fn objective(&self, _training: &TrainingConfig, _gold: &[Self::Gold]) -> Result<Objective> {
        Ok(Objective::of(Self::HEAD))
    }

    /// Returns lines that summarise the examples.
    fn summary(&self, examples: &Examples<Self>) -> Vec<String>;

    /// Describes the labels of the training examples in a line of a plan.
    fn described(&self, gold: &[Self::Gold]) -> String;

    /// Fits what is not a weight of the model, such as thresholds, to the evaluation examples.
    fn fit(&mut self, _judged: &Judged<'_, Self>) {}

    /// Names of the scores of an evaluation.
    fn score_names(&self) -> Vec<String>;

    /// The scores of an evaluation, `loss` first. They do not depend on [`FinetuningTask::fit`]: with it
    /// every evaluation would be fitted to its own examples, and evaluations would not be comparable.
    fn scores(&self, judged: &Judged<'_, Self>) -> Scores;

    /// Further scores, which depend on [`FinetuningTask::fit`].
    fn fitted_scores(&self, _judged: &Judged<'_, Self>) -> Scores {
        Scores::new()
    }

    /// The result of each example; like the scores, it does not depend on [`FinetuningTask::fit`].
    fn outcomes(&self, judged: &Judged<'_, Self>) -> Outcomes;

    /// Describes predictions that are the same for all examples although the labels differ.
    fn uniform_answers(&self, judged: &Judged<'_, Self>) -> Option<String> {
        self.outcomes(judged).uniform_answers()
    }

    /// Text about an evaluation that a report prints in addition to the scores.
    fn details(&self, judged: &Judged<'_, Self>) -> String;

    /// Returns the baselines on these examples that need no neural network, the best one last.
    fn floors(&self, examples: &Examples<Self>) -> Vec<Floor>;

    /// Returns additional files for the folder of the final model.
    fn model_files(&self) -> Vec<(String, Vec<u8>)> {
        Vec::new()
    }

    /// Formats the prediction for an example as the text of a file of predictions, by the name of the file.
    fn line(&self, file: &Path, row: &Row<Self>, answer: &Answer<Self>) -> Result<String>;

    /// Estimates the bytes of all files of predictions.
    fn lines_bytes(&self, rows: &[Row<Self>]) -> u64;

    /// Adds the scores of `evaluate`.
    fn report(&self, judged: &Judged<'_, Self>, scored: &mut Scored);

    /// Adds tables to the results of `evaluate`.
    fn explain(&self, judged: &Judged<'_, Self>, scored: &mut Scored);

    /// Notes on the answers of `predict`.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// The answer of `predict`, a JSON object.
    fn answer(
        &self,
        question: &<Self::Input as Input>::Question,
        row: Row<Self>,
        answer: &Answer<Self>,
    ) -> Result<Value>;
}

/// The score by which the better of two runs is chosen, and if higher or lower is better.
pub fn best<T: FinetuningTask>() -> (&'static str, Better) {
    (T::BEST, Better::of(T::BEST))
}

/// Returns for each row of logits, which are f32 on the CPU, what the outputs mean: probabilities or numbers.
pub(super) fn decode(objective: &Objective, logits: &Tensor) -> Result<Vec<Vec<f32>>> {
    debug_assert!(logits.dtype() == DType::F32 && matches!(logits.device(), Device::Cpu));
    match objective {
        Objective::OneClass | Objective::SoftClass(_) | Objective::Distilled { .. } => {
            Ok(candle_nn::ops::softmax(logits, candle_core::D::Minus1)?.to_vec2()?)
        }
        Objective::Labels => {
            let mut rows = logits.to_vec2()?;
            rows.iter_mut().flatten().for_each(|logit| *logit = sigmoid(*logit));
            Ok(rows)
        }
        Objective::Numbers => Ok(logits.to_vec2()?),
    }
}
