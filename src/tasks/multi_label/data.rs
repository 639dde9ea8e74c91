//! The data of a run with any number of labels per text: tokenized examples with their labels, the position
//! of the next step, and the predictions for the evaluation examples.

use std::path::Path;

use anyhow::Result;
use candle_core::{Device, Tensor};

use crate::batches::{Batch, StepBatches};
use crate::distributed::World;
use crate::fs;
use crate::fs::StagedFile;
use crate::ops::sigmoid_cross_entropy;
use crate::ops::sigmoid_cross_entropy::sigmoid;
use crate::tasks::classify::{Collator, Encoded, sequence};
use crate::tasks::divided::for_each_output;
use crate::tasks::multi_label::LabelledExamples;
use crate::tasks::multi_label::report::{PredictionRow, SCORES, TUNED, rows_bytes, scores, tally};
use crate::tasks::multi_label::thresholds::Thresholds;
use crate::tasks::run::{Beginning, Data, Scores, Setting};
use crate::tasks::shuffled::Shuffled;
use crate::tasks::{Loss, PendingLoss, Task};
use crate::tokenizer::Tokenizer;

/// File with the predictions for the evaluation examples, in the run's folder.
pub const PREDICTIONS: &str = "predictions.jsonl";

/// Training and evaluation examples, and the results of the latest evaluation.
pub struct TrainingData<'a> {
    examples: &'a LabelledExamples,
    train: Vec<Encoded>,
    eval: Vec<Encoded>,
    collator: Collator,
    order: Shuffled,
    /// The processes that share an evaluation.
    world: World,
    eval_rows: usize,
    /// Probabilities of the labels for each example, from the latest evaluation.
    pub(super) probabilities: Vec<Vec<f32>>,
    /// Thresholds that were tuned in the latest evaluation.
    pub(super) thresholds: Thresholds,
}

impl<'a> TrainingData<'a> {
    /// Tokenizes all examples, and prints a note about truncation.
    pub(super) fn encode(
        examples: &'a LabelledExamples,
        tokenizer: &Tokenizer,
        collator: Collator,
        setting: Setting<'_>,
    ) -> Result<Self> {
        let progress = setting.progress;
        Ok(Self {
            train: sequence::encoded("training", &examples.train, &[], tokenizer, &collator, progress)?,
            eval: sequence::encoded("evaluation", &examples.eval, &[], tokenizer, &collator, progress)?,
            thresholds: Thresholds::default_of(examples.labels.len()),
            examples,
            collator,
            order: Shuffled::new(&setting),
            world: setting.machine.world,
            eval_rows: setting.training.per_device_eval_batch_size,
            probabilities: Vec::new(),
        })
    }

    /// Number of rows of all updates of an epoch, as if the last update were full.
    pub(super) fn rows_per_epoch(&self) -> u64 {
        self.order.rows_per_epoch(self.train.len())
    }
}

/// Makes a batch whose labels are a 0 or 1 for each label of each example.
fn batch(examples: &LabelledExamples, collator: &Collator, rows: &[&Encoded], first_row: u64) -> Batch {
    let ids = rows.iter().map(|row| &examples.train_ids[row.sample_id as usize]);
    let labels = ids.flat_map(|ids| hot(ids, examples.labels.len())).collect();
    Batch { labels, ..collator.batch(rows.iter().copied(), first_row) }
}

/// Multi-hot vector of length `labels`: 1 for each of `ids`, which are ascending, and 0 elsewhere.
fn hot(ids: &[u32], labels: usize) -> impl Iterator<Item = u32> {
    (0..labels as u32).map(|label| u32::from(ids.binary_search(&label).is_ok()))
}

/// Returns the probabilities of the labels of some examples, and their loss if their labels are `ids`.
pub(super) fn judged(mut logits: Vec<Vec<f32>>, ids: &[Vec<u32>]) -> Result<(Vec<Vec<f32>>, Loss)> {
    let classes = logits.first().map_or(0, Vec::len);
    let labels: Vec<u32> = ids.iter().flat_map(|ids| hot(ids, classes)).collect();
    let tensor = Tensor::from_vec(logits.concat(), (logits.len(), classes), &Device::Cpu)?;
    let totals = sigmoid_cross_entropy::forward(&tensor, &labels)?;
    let loss = PendingLoss::of_totals(totals, labels.len()).read()?;
    logits.iter_mut().flatten().for_each(|z| *z = sigmoid(*z));
    Ok((logits, loss))
}

impl Data for TrainingData<'_> {
    fn start(&mut self, beginning: Beginning) -> Result<()> {
        self.order.start(beginning.cursor);
        Ok(())
    }

    fn next_step(&mut self) -> Result<StepBatches> {
        let Self { order, train, collator, examples, .. } = self;
        Ok(order.next_step(train, |rows, first_row| batch(examples, collator, rows, first_row)))
    }

    /// Tunes the thresholds, but returns the scores at the threshold 0.5: with tuned thresholds every
    /// evaluation would be fitted to its own examples, and evaluations would not be comparable.
    fn evaluate(&mut self, task: &dyn Task, interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        let labels = self.examples.labels.len();
        let gold = &self.examples.eval_ids;
        let mut probabilities = Vec::with_capacity(gold.len());
        let mut loss = Loss::default();
        let ids: Vec<&[Vec<u32>]> = gold.chunks(self.eval_rows).collect();
        let made = self.eval.chunks(self.eval_rows).map(|examples| self.collator.batch(examples, 0));
        let is_whole = for_each_output(self.world, task, made, interrupted, |number, logits| {
            let (rows, batch_loss) = judged(logits.to_vec2()?, ids[number])?;
            probabilities.extend(rows);
            loss += batch_loss;
            Ok(())
        })?;
        if !is_whole {
            return Ok(None);
        }
        let untuned = scores(&tally(gold, &probabilities, &Thresholds::default_of(labels)));
        self.thresholds = Thresholds::tuned(labels, gold, &probabilities);
        self.probabilities = probabilities;
        let all = [("loss", loss.mean())].into_iter().chain(untuned);
        Ok(Some(all.map(|(name, value)| (name.to_string(), value)).collect()))
    }

    fn score_names(&self) -> Vec<String> {
        ["loss"].into_iter().chain(SCORES).map(str::to_string).collect()
    }

    fn wants_evaluation(&self) -> bool {
        self.probabilities.is_empty()
    }

    fn model_files(&self) -> Vec<(String, Vec<u8>)> {
        vec![self.thresholds.file(&self.examples.labels)]
    }

    fn finish_bytes(&self) -> u64 {
        rows_bytes(&self.examples.eval, &self.examples.labels)
    }

    fn finish(&mut self, output: &Path, interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        let examples = self.examples;
        let path = output.join(PREDICTIONS);
        fs::require_space(&path, self.finish_bytes(), "the predictions do not fit").map_err(|problem| {
            problem.hint("free some room and run the same command again; the model is in the last checkpoint")
        })?;
        let mut file = StagedFile::create(&path)?;
        for (example, probabilities) in examples.eval.iter().zip(&self.probabilities) {
            if interrupted() {
                return Ok(None);
            }
            let row = PredictionRow::of_example(example, &examples.labels, probabilities, &self.thresholds);
            file.write(row.line()?.as_bytes())?;
        }
        file.publish(b"")?;
        let tuned = tally(&examples.eval_ids, &self.probabilities, &self.thresholds);
        Ok(Some(scores(&tuned).map(|(name, value)| (format!("{name}{TUNED}"), value)).into()))
    }
}
