//! The data of a fine-tuning run for classification: tokenized examples, the position of the next step, and
//! the predictions for the evaluation examples.

use std::path::Path;

use anyhow::Result;
use candle_core::D;

use crate::batches::StepBatches;
use crate::distributed::World;
use crate::fs;
use crate::fs::StagedFile;
use crate::ops::cross_entropy;
use crate::quantity::format_bytes;
use crate::scores::Confusion;
use crate::tasks::classify::finetuning::Examples;
use crate::tasks::classify::report::{best_class, rows_bytes};
use crate::tasks::classify::{Collator, Encoded, PredictionRow, sequence};
use crate::tasks::divided::for_each_output;
use crate::tasks::labelled::Example;
use crate::tasks::run::{Beginning, Data, Scores, Setting};
use crate::tasks::shuffled::Shuffled;
use crate::tasks::{Loss, PendingLoss, Task};
use crate::telemetry::Progress;
use crate::tokenizer::Tokenizer;

/// File with the predictions for the evaluation examples, in the run's folder.
pub const PREDICTIONS: &str = "predictions.jsonl";

/// Names of the scores of an evaluation, as the Trainer of transformers gives them.
const SCORES: [&str; 4] = ["loss", "accuracy", "f1", "matthews_correlation"];

/// Size of a predictions file from which on a note says that it is being written, since that takes long.
const ANNOUNCED_BYTES: u64 = 64 << 20;

/// Training and evaluation examples, and the results of the latest evaluation.
pub struct TrainingData<'a> {
    examples: &'a Examples,
    progress: Progress,
    train: Vec<Encoded>,
    eval: Vec<Encoded>,
    collator: Collator,
    order: Shuffled,
    /// The processes that share an evaluation.
    world: World,
    eval_rows: usize,
    /// Probabilities of the labels for each example, from the latest evaluation.
    probabilities: Vec<Vec<f32>>,
    /// Gold against predicted labels, from the latest evaluation.
    pub confusion: Confusion,
}

impl<'a> TrainingData<'a> {
    /// Tokenizes all examples, and prints a note about truncation.
    pub(super) fn encode(
        examples: &'a Examples,
        tokenizer: &Tokenizer,
        collator: Collator,
        setting: Setting<'_>,
    ) -> Result<Self> {
        let progress = setting.progress;
        let Examples { train, train_ids, eval, eval_ids, .. } = examples;
        Ok(Self {
            train: sequence::encoded("training", train, train_ids, tokenizer, &collator, progress)?,
            eval: sequence::encoded("evaluation", eval, eval_ids, tokenizer, &collator, progress)?,
            confusion: Confusion::new(examples.labels.len()),
            examples,
            progress: progress.clone(),
            collator,
            order: Shuffled::new(&setting),
            world: setting.machine.world,
            eval_rows: setting.training.per_device_eval_batch_size,
            probabilities: Vec::new(),
        })
    }

    /// Returns the label that the latest evaluation predicted for each example.
    pub(super) fn predicted(&self) -> Vec<u32> {
        self.probabilities.iter().map(|row| best_class(row) as u32).collect()
    }

    /// Number of rows of all updates of an epoch, as if the last update were full.
    pub(super) fn rows_per_epoch(&self) -> u64 {
        self.order.rows_per_epoch(self.train.len())
    }
}

impl Data for TrainingData<'_> {
    fn start(&mut self, beginning: Beginning) -> Result<()> {
        self.order.start(beginning.cursor);
        Ok(())
    }

    fn next_step(&mut self) -> Result<StepBatches> {
        Ok(self.order.next_step(&self.train, |rows, first| self.collator.batch(rows.iter().copied(), first)))
    }

    fn evaluate(&mut self, task: &dyn Task, interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        let mut loss = Loss::default();
        let mut confusion = Confusion::new(self.examples.labels.len());
        let mut probabilities = Vec::with_capacity(self.eval.len());
        let batches: Vec<&[Encoded]> = self.eval.chunks(self.eval_rows).collect();
        let made = batches.iter().map(|examples| self.collator.batch(*examples, 0));
        let is_whole = for_each_output(self.world, task, made, interrupted, |number, logits| {
            let labels: Vec<u32> = batches[number].iter().map(|example| example.label).collect();
            loss += PendingLoss::of(cross_entropy::forward(&logits, &labels)?, labels.len()).read()?;
            for (row, &label) in logits.to_vec2::<f32>()?.iter().zip(&labels) {
                confusion.add(label, best_class(row) as u32);
            }
            probabilities.extend(candle_nn::ops::softmax(&logits, D::Minus1)?.to_vec2::<f32>()?);
            Ok(())
        })?;
        if !is_whole {
            return Ok(None);
        }
        let scores = [loss.mean(), confusion.accuracy(), confusion.macro_f1(), confusion.matthews()];
        self.confusion = confusion;
        self.probabilities = probabilities;
        Ok(Some(SCORES.iter().zip(scores).map(|(name, value)| ((*name).to_string(), value)).collect()))
    }

    fn score_names(&self) -> Vec<String> {
        SCORES.map(str::to_string).to_vec()
    }

    fn wants_evaluation(&self) -> bool {
        self.probabilities.is_empty()
    }

    fn finish_bytes(&self) -> u64 {
        rows_bytes(&self.examples.eval, &self.examples.labels)
    }

    fn finish(&mut self, output: &Path, interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        let examples = self.examples;
        let path = output.join(PREDICTIONS);
        let bytes = self.finish_bytes();
        fs::require_space(&path, bytes, "the predictions do not fit").map_err(|problem| {
            problem.hint("free some room and run the same command again; the model is in the last checkpoint")
        })?;
        if bytes > ANNOUNCED_BYTES {
            let bytes = format_bytes(bytes);
            let labels = examples.labels.len();
            self.progress.note(&format!("writing about {bytes} of predictions with {labels} labels each"));
        }
        let mut file = StagedFile::create(&path)?;
        for (example, probabilities) in examples.eval.iter().zip(&self.probabilities) {
            // With thousands of labels a row is long, and all rows together take minutes.
            if interrupted() {
                return Ok(None);
            }
            let Example { text, text_pair, label, .. } = example.clone();
            let row = PredictionRow::new(text, text_pair, label, &examples.labels, probabilities);
            file.write(row.line()?.as_bytes())?;
        }
        file.publish(b"")?;
        Ok(Some(Scores::new()))
    }
}
