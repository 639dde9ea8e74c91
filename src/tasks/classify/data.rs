//! The data of a fine-tuning run: encoded examples, where the next step takes its own, and what the model
//! predicts for those that it is evaluated on.

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
use crate::tasks::Loss;
use crate::tasks::PendingLoss;
use crate::tasks::Task;
use crate::tasks::classify::Collator;
use crate::tasks::classify::Encoded;
use crate::tasks::classify::PredictionRow;
use crate::tasks::classify::finetuning::Examples;
use crate::tasks::classify::report::best_class;
use crate::tasks::classify::report::rows_bytes;
use crate::tasks::classify::sequence;
use crate::tasks::divided::for_each_output;
use crate::tasks::labelled::Example;
use crate::tasks::run::Beginning;
use crate::tasks::run::Data;
use crate::tasks::run::Scores;
use crate::tasks::run::Setting;
use crate::tasks::shuffled::Shuffled;
use crate::telemetry::Progress;
use crate::tokenizer::Tokenizer;

/// Predictions on the evaluation file, beside the final model.
pub const PREDICTIONS: &str = "predictions.jsonl";

/// Trainer's names of the scores of an evaluation.
const SCORES: [&str; 4] = ["loss", "accuracy", "f1", "matthews_correlation"];

/// Predictions that take longer to write than anybody would wait without a word.
const TOLD_BYTES: u64 = 64 << 20;

/// Examples as batches.
pub struct TrainingData<'a> {
    examples: &'a Examples,
    progress: Progress,
    train: Vec<Encoded>,
    eval: Vec<Encoded>,
    collator: Collator,
    order: Shuffled,
    /// The processes that divide an evaluation among them.
    world: World,
    eval_rows: usize,
    /// Of the latest evaluation, a row of probabilities for each example.
    probabilities: Vec<Vec<f32>>,
    /// Of the latest evaluation, gold against predicted labels.
    pub confusion: Confusion,
}

impl<'a> TrainingData<'a> {
    /// Encodes all examples, and says what was cut.
    pub(super) fn encode(
        examples: &'a Examples,
        tokenizer: &Tokenizer,
        collator: Collator,
        setting: Setting<'_>,
    ) -> Result<Self> {
        let encode = |what, examples, ids| {
            sequence::encoded(what, examples, ids, (tokenizer, &collator), setting.progress)
        };
        Ok(Self {
            train: encode("training", &examples.train, &examples.train_ids)?,
            eval: encode("evaluation", &examples.eval, &examples.eval_ids)?,
            confusion: Confusion::new(examples.labels.len()),
            examples,
            progress: setting.progress.clone(),
            collator,
            order: Shuffled::new(&setting),
            world: setting.machine.world,
            eval_rows: setting.training.per_device_eval_batch_size,
            probabilities: Vec::new(),
        })
    }

    /// The label of each evaluation example, by the latest evaluation.
    pub(super) fn predicted(&self) -> Vec<u32> {
        self.probabilities.iter().map(|row| best_class(row) as u32).collect()
    }

    /// Rows of all updates of an epoch; the last one may have fewer.
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
        let batch = |rows: &[&Encoded], first_row| self.collator.batch(rows.iter().copied(), first_row);
        Ok(self.order.next_step(&self.train, batch))
    }

    fn evaluate(&mut self, task: &dyn Task, interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        let (mut loss, mut confusion) = (Loss::default(), Confusion::new(self.examples.labels.len()));
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
        (self.confusion, self.probabilities) = (confusion, probabilities);
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
        let (examples, path) = (self.examples, output.join(PREDICTIONS));
        let bytes = self.finish_bytes();
        fs::require_space(&path, bytes, "the predictions do not fit").map_err(|problem| {
            problem.hint("free some room and run the same command again; the model is in the last checkpoint")
        })?;
        if bytes > TOLD_BYTES {
            let (bytes, labels) = (format_bytes(bytes), examples.labels.len());
            self.progress.note(&format!("writing about {bytes} of predictions with {labels} labels each"));
        }
        let mut file = StagedFile::create(&path)?;
        for (example, probabilities) in examples.eval.iter().zip(&self.probabilities) {
            // With thousands of labels a row is long, and all rows take minutes.
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
