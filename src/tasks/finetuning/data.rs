//! The data of a fine-tuning run: tokenized examples, the position of the next step, and the predictions for
//! the evaluation examples.

use std::path::Path;

use anyhow::Result;

use crate::batches::StepBatches;
use crate::distributed::World;
use crate::error::Problem;
use crate::fs;
use crate::fs::StagedFile;
use crate::quantity::format_bytes;
use crate::scores::Outcomes;
use crate::tasks::Task;
use crate::tasks::examples::Set;
use crate::tasks::finetuning::judge::{Judge, batch};
use crate::tasks::run::{Beginning, Data, Scores, Setting};
use crate::tasks::shuffled::Shuffled;
use crate::tasks::target::{Answer, Collator, Encoded, Examples, Input, Judged, Row, Target};
use crate::telemetry::Progress;
use crate::tokenizer::Tokenizer;

/// Size of a predictions file from which on a note says that it is being written, since that takes long.
const ANNOUNCED_BYTES: u64 = 64 << 20;

/// Training and evaluation examples, and the results of the latest evaluation.
pub struct TrainingData<'a, T: Target> {
    examples: &'a Examples<T>,
    /// The labels, with what was fitted to the latest evaluation.
    target: T,
    progress: Progress,
    train: Vec<Encoded<T>>,
    eval: Scored<T>,
    test: Option<Scored<T>>,
    collator: Collator<T>,
    order: Shuffled,
    /// The processes that share an evaluation.
    world: World,
    eval_rows: usize,
}

/// Examples that the model is scored on, and what it made of them when it last was.
struct Scored<T: Target> {
    encoded: Vec<Encoded<T>>,
    /// The prediction for each example; empty before the first evaluation.
    answers: Vec<Answer<T>>,
    loss: f64,
}

impl<T: Target> Scored<T> {
    fn new(encoded: Vec<Encoded<T>>) -> Self {
        Self { encoded, answers: Vec::new(), loss: f64::NAN }
    }

    /// These predictions with the examples `set`.
    fn judged<'a>(&'a self, set: &'a Set<Row<T>, T::Gold>) -> Judged<'a, T> {
        Judged { rows: &set.rows, gold: &set.gold, answers: &self.answers, loss: self.loss }
    }

    /// Predicts the examples again, which are those of `set`. Returns false if it was interrupted.
    fn predict(
        &mut self,
        set: &Set<Row<T>, T::Gold>,
        judge: &Judge<'_, T>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let verdict = judge.verdict(&set.rows, &self.encoded, Some(&set.gold), interrupted)?;
        let Some(verdict) = verdict else { return Ok(false) };
        self.answers = verdict.answers;
        self.loss = verdict.loss.mean();
        Ok(true)
    }
}

impl<'a, T: Target> TrainingData<'a, T> {
    /// Tokenizes all examples, and prints notes about unusual ones.
    pub(super) fn encode(
        examples: &'a Examples<T>,
        tokenizer: &Tokenizer,
        collator: Collator<T>,
        setting: Setting<'_>,
    ) -> Result<Self> {
        let progress = setting.progress;
        let train = encode::<T>("training", &examples.train, tokenizer, &collator, progress)?;
        if train.is_empty() {
            return Err(Problem::new("the tokenizer makes nothing of any word to train on")
                .at("data.train_file")
                .hint("is it the tokenizer of this language?")
                .into());
        }
        let eval = encode::<T>("evaluation", &examples.eval, tokenizer, &collator, progress)?;
        let test = examples.test.as_ref();
        let test = test.map(|set| encode::<T>("test", set, tokenizer, &collator, progress)).transpose()?;
        Ok(Self {
            train,
            eval: Scored::new(eval),
            test: test.map(Scored::new),
            examples,
            target: examples.target.clone(),
            progress: progress.clone(),
            collator,
            order: Shuffled::new(&setting),
            world: setting.machine.world,
            eval_rows: setting.training.per_device_eval_batch_size,
        })
    }

    /// Number of rows of all updates of an epoch, as if the last update were full.
    pub(super) fn rows_per_epoch(&self) -> u64 {
        self.order.rows_per_epoch(self.train.len())
    }

    /// Text about the latest evaluation that a report prints in addition to the scores.
    pub fn details(&self) -> String {
        self.target.details(&self.judged())
    }

    /// The result of each example in the latest evaluation.
    pub fn outcomes(&self) -> Outcomes {
        self.target.outcomes(&self.judged())
    }

    /// Describes predictions of the latest evaluation that are the same for all examples.
    pub fn uniform_answers(&self) -> Option<String> {
        self.target.uniform_answers(&self.judged())
    }

    /// The result of each test example, if there are any.
    pub fn test_outcomes(&self) -> Option<Outcomes> {
        let (test, set) = self.test.as_ref().zip(self.examples.test.as_ref())?;
        Some(self.target.outcomes(&test.judged(set)))
    }

    /// The evaluation examples with the predictions of the latest evaluation.
    fn judged(&self) -> Judged<'_, T> {
        self.eval.judged(&self.examples.eval)
    }
}

fn encode<T: Target>(
    name: &str,
    set: &Set<Row<T>, T::Gold>,
    tokenizer: &Tokenizer,
    collator: &Collator<T>,
    progress: &Progress,
) -> Result<Vec<Encoded<T>>> {
    let (encoded, unusual) = T::Input::encode(tokenizer, collator, &set.rows)?;
    for note in T::Input::notes(name, &encoded, &set.rows, &unusual, collator) {
        progress.note_once(&note);
    }
    Ok(encoded)
}

/// Writes a file of predictions. Returns false if it was interrupted.
pub(super) fn write_lines<T: Target>(
    path: &Path,
    mut file: StagedFile,
    target: &T,
    judged: &Judged<'_, T>,
    interrupted: &dyn Fn() -> bool,
) -> Result<bool> {
    for (row, answer) in judged.rows.iter().zip(judged.answers) {
        // With thousands of labels a row is long, and all rows together take minutes.
        if interrupted() {
            return Ok(false);
        }
        file.write(target.line(path, row, answer)?.as_bytes())?;
    }
    file.publish(b"")?;
    Ok(true)
}

impl<T: Target> Data for TrainingData<'_, T> {
    fn start(&mut self, beginning: Beginning) -> Result<()> {
        self.order.start(beginning.cursor);
        Ok(())
    }

    fn next_step(&mut self) -> Result<StepBatches> {
        let Self {
            order, train, collator, examples: Examples { target, train: Set { gold, .. }, .. }, ..
        } = self;
        Ok(order.next_step(train, |rows, first_row| batch(target, gold, collator, rows, first_row)))
    }

    fn evaluate(&mut self, task: &dyn Task, interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        let examples = self.examples;
        let judge = Judge {
            target: &self.target,
            task,
            collator: &self.collator,
            world: self.world,
            batch_size: self.eval_rows,
        };
        if !self.eval.predict(&examples.eval, &judge, interrupted)? {
            return Ok(None);
        }
        let judged = self.eval.judged(&examples.eval);
        self.target.fit(&judged);
        Ok(Some(self.target.scores(&judged)))
    }

    fn test(&mut self, task: &dyn Task, interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        let (Some(test), Some(set)) = (&mut self.test, &self.examples.test) else {
            return Ok(Some(Scores::new()));
        };
        let judge = Judge {
            target: &self.target,
            task,
            collator: &self.collator,
            world: self.world,
            batch_size: self.eval_rows,
        };
        if !test.predict(set, &judge, interrupted)? {
            return Ok(None);
        }
        let scores = self.target.scores(&test.judged(set));
        Ok(Some(scores.into_iter().map(|(name, value)| (format!("test_{name}"), value)).collect()))
    }

    fn score_names(&self) -> Vec<String> {
        self.target.score_names()
    }

    fn wants_evaluation(&self) -> bool {
        self.eval.answers.is_empty()
    }

    fn model_files(&self) -> Vec<(String, Vec<u8>)> {
        self.target.model_files()
    }

    fn finish_bytes(&self) -> u64 {
        self.target.lines_bytes(&self.examples.eval.rows)
    }

    fn finish(&mut self, output: &Path, interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        let bytes = self.finish_bytes();
        let judged = self.judged();
        if bytes > ANNOUNCED_BYTES {
            let labels = self.target.names().len();
            let bytes = format_bytes(bytes);
            self.progress.note(&format!("writing about {bytes} of predictions with {labels} labels each"));
        }
        for name in T::PREDICTIONS {
            let path = output.join(name);
            fs::require_space(&path, bytes, "the predictions do not fit").map_err(|problem| {
                problem.hint(
                    "free some room and run the same command again; the model is in the last checkpoint",
                )
            })?;
            if !write_lines(&path, StagedFile::create(&path)?, &self.target, &judged, interrupted)? {
                return Ok(None);
            }
        }
        Ok(Some(self.target.fitted_scores(&judged)))
    }
}
