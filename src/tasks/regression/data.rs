//! The data of a regression run: tokenized examples with their numbers, the position of the next step, and
//! the predictions for the evaluation examples.

use std::path::Path;

use anyhow::Result;

use crate::batches::{Batch, StepBatches};
use crate::distributed::World;
use crate::fs;
use crate::fs::StagedFile;
use crate::tasks::Task;
use crate::tasks::classify::{Collator, Encoded, sequence};
use crate::tasks::divided::for_each_output;
use crate::tasks::regression::NumberExamples;
use crate::tasks::regression::regressor::line;
use crate::tasks::regression::scores::{score_names, scores};
use crate::tasks::run::{Beginning, Data, Scores, Setting};
use crate::tasks::shuffled::Shuffled;
use crate::tokenizer::Tokenizer;

/// File with the predictions for the evaluation examples, in the run's folder.
pub const PREDICTIONS: &str = "predictions.jsonl";

/// Bytes of a number in a row of predictions, with its name; it appears twice.
const NUMBER_BYTES: u64 = 80;

/// Training and evaluation examples, and the results of the latest evaluation.
pub struct TrainingData<'a> {
    examples: &'a NumberExamples,
    train: Vec<Encoded>,
    eval: Vec<Encoded>,
    collator: Collator,
    order: Shuffled,
    /// The processes that share an evaluation.
    world: World,
    eval_rows: usize,
    /// Predicted numbers of each example, from the latest evaluation.
    pub(super) predicted: Vec<Vec<f32>>,
}

impl<'a> TrainingData<'a> {
    /// Tokenizes all examples, and prints a note about truncation.
    pub(super) fn encode(
        examples: &'a NumberExamples,
        tokenizer: &Tokenizer,
        collator: Collator,
        setting: Setting<'_>,
    ) -> Result<Self> {
        let progress = setting.progress;
        Ok(Self {
            train: sequence::encoded("training", &examples.train, &[], tokenizer, &collator, progress)?,
            eval: sequence::encoded("evaluation", &examples.eval, &[], tokenizer, &collator, progress)?,
            examples,
            collator,
            order: Shuffled::new(&setting),
            world: setting.machine.world,
            eval_rows: setting.training.per_device_eval_batch_size,
            predicted: Vec::new(),
        })
    }

    /// Number of rows of all updates of an epoch, as if the last update were full.
    pub(super) fn rows_per_epoch(&self) -> u64 {
        self.order.rows_per_epoch(self.train.len())
    }
}

/// Makes a batch whose labels are the bits of the numbers of its examples.
fn batch(examples: &NumberExamples, collator: &Collator, rows: &[&Encoded], first_row: u64) -> Batch {
    let numbers = rows.iter().flat_map(|row| &examples.train[row.sample_id as usize].numbers);
    let labels = numbers.map(|number| number.to_bits()).collect();
    Batch { labels, ..collator.batch(rows.iter().copied(), first_row) }
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

    fn evaluate(&mut self, task: &dyn Task, interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        let mut predicted = Vec::with_capacity(self.eval.len());
        let made = self.eval.chunks(self.eval_rows).map(|examples| self.collator.batch(examples, 0));
        let is_whole = for_each_output(self.world, task, made, interrupted, |_, outputs| {
            predicted.extend(outputs.to_vec2::<f32>()?);
            Ok(())
        })?;
        if !is_whole {
            return Ok(None);
        }
        let gold: Vec<Vec<f32>> = self.examples.eval.iter().map(|example| example.numbers.clone()).collect();
        let scores = scores(&self.examples.names, &gold, &predicted);
        self.predicted = predicted;
        Ok(Some(scores))
    }

    fn score_names(&self) -> Vec<String> {
        score_names(&self.examples.names)
    }

    fn wants_evaluation(&self) -> bool {
        self.predicted.is_empty()
    }

    fn finish_bytes(&self) -> u64 {
        let names: u64 = self.examples.names.iter().map(|name| 2 * name.len() as u64 + NUMBER_BYTES).sum();
        let texts = self.examples.eval.iter();
        let texts = texts.map(|e| (e.text.len() + e.text_pair.as_ref().map_or(0, String::len)) as u64);
        texts.map(|text| text + names + 100).sum()
    }

    fn finish(&mut self, output: &Path, interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        let path = output.join(PREDICTIONS);
        fs::require_space(&path, self.finish_bytes(), "the predictions do not fit").map_err(|problem| {
            problem.hint("free some room and run the same command again; the model is in the last checkpoint")
        })?;
        let mut file = StagedFile::create(&path)?;
        for (example, predicted) in self.examples.eval.iter().zip(&self.predicted) {
            if interrupted() {
                return Ok(None);
            }
            file.write(line(example, &self.examples.names, predicted).as_bytes())?;
        }
        file.publish(b"")?;
        Ok(Some(Scores::new()))
    }
}
