//! The data of a run with any number of labels a text: encoded examples with their labels, where the next
//! step takes its own, and what the model predicts for those that it is evaluated on.

use std::path::Path;

use anyhow::Result;
use candle_core::Device;
use candle_core::Tensor;

use crate::batches::Batch;
use crate::batches::StepBatches;
use crate::distributed::World;
use crate::fs;
use crate::fs::StagedFile;
use crate::ops::sigmoid_cross_entropy;
use crate::ops::sigmoid_cross_entropy::sigmoid;
use crate::tasks::Loss;
use crate::tasks::PendingLoss;
use crate::tasks::Task;
use crate::tasks::classify::Collator;
use crate::tasks::classify::Encoded;
use crate::tasks::classify::sequence;
use crate::tasks::divided::for_each_output;
use crate::tasks::multi_label::LabelledExamples;
use crate::tasks::multi_label::report::PredictionRow;
use crate::tasks::multi_label::report::SCORES;
use crate::tasks::multi_label::report::TUNED;
use crate::tasks::multi_label::report::rows_bytes;
use crate::tasks::multi_label::report::scores;
use crate::tasks::multi_label::report::tally;
use crate::tasks::multi_label::thresholds::Thresholds;
use crate::tasks::run::Beginning;
use crate::tasks::run::Data;
use crate::tasks::run::Scores;
use crate::tasks::run::Setting;
use crate::tasks::shuffled::Shuffled;
use crate::tokenizer::Tokenizer;

/// Predictions on the evaluation file, beside the final model.
pub const PREDICTIONS: &str = "predictions.jsonl";

/// Examples as batches.
pub struct TrainingData<'a> {
    examples: &'a LabelledExamples,
    train: Vec<Encoded>,
    eval: Vec<Encoded>,
    collator: Collator,
    order: Shuffled,
    /// The processes that divide an evaluation among them.
    world: World,
    eval_rows: usize,
    /// Of the latest evaluation, a row of probabilities for each example.
    pub(super) probabilities: Vec<Vec<f32>>,
    /// Of the latest evaluation.
    pub(super) thresholds: Thresholds,
}

impl<'a> TrainingData<'a> {
    /// Encodes all examples, and says what was cut.
    pub(super) fn encode(
        examples: &'a LabelledExamples,
        tokenizer: &Tokenizer,
        collator: Collator,
        setting: Setting<'_>,
    ) -> Result<Self> {
        let encode =
            |what, examples| sequence::encoded(what, examples, &[], (tokenizer, &collator), setting.progress);
        Ok(Self {
            train: encode("training", &examples.train)?,
            eval: encode("evaluation", &examples.eval)?,
            thresholds: Thresholds::default_of(examples.labels.len()),
            examples,
            collator,
            order: Shuffled::new(&setting),
            world: setting.machine.world,
            eval_rows: setting.training.per_device_eval_batch_size,
            probabilities: Vec::new(),
        })
    }

    /// Rows of all updates of an epoch; the last one may have fewer.
    pub(super) fn rows_per_epoch(&self) -> u64 {
        self.order.rows_per_epoch(self.train.len())
    }
}

/// A batch whose labels are 0 or 1, for each label of each example.
fn batch(examples: &LabelledExamples, collator: &Collator, rows: &[&Encoded], first_row: u64) -> Batch {
    let ids = rows.iter().map(|row| &examples.train_ids[row.sample_id as usize]);
    let labels = ids.flat_map(|ids| hot(ids, examples.labels.len())).collect();
    Batch { labels, ..collator.batch(rows.iter().copied(), first_row) }
}

/// For each of so many labels 1 where it is among `ids`, which are ascending, else 0.
fn hot(ids: &[u32], labels: usize) -> impl Iterator<Item = u32> {
    (0..labels as u32).map(|label| u32::from(ids.binary_search(&label).is_ok()))
}

/// The probabilities of the labels of some examples, and the loss of these where their labels are `ids`.
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

    /// Thresholds are tuned anew, but the scores are those of 0.5: else every evaluation would fit to its own
    /// examples, and no two would compare.
    fn evaluate(&mut self, task: &dyn Task, interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        let (labels, gold) = (self.examples.labels.len(), &self.examples.eval_ids);
        let (mut probabilities, mut loss) = (Vec::with_capacity(gold.len()), Loss::default());
        let ids: Vec<&[Vec<u32>]> = gold.chunks(self.eval_rows).collect();
        let made = self.eval.chunks(self.eval_rows).map(|examples| self.collator.batch(examples, 0));
        let is_whole = for_each_output(self.world, task, made, interrupted, |number, logits| {
            let (rows, of_batch) = judged(logits.to_vec2()?, ids[number])?;
            probabilities.extend(rows);
            loss += of_batch;
            Ok(())
        })?;
        if !is_whole {
            return Ok(None);
        }
        let of_half = scores(&tally(gold, &probabilities, &Thresholds::default_of(labels)));
        self.thresholds = Thresholds::tuned(labels, gold, &probabilities);
        self.probabilities = probabilities;
        let all = [("loss", loss.mean())].into_iter().chain(of_half);
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
        let (examples, path) = (self.examples, output.join(PREDICTIONS));
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
