//! The data of a fine-tuning run: tokenized examples, the position of the next step, and the predictions for
//! the evaluation examples.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use crate::tasks::Task;
use crate::tasks::examples::Set;
use crate::tasks::finetuning::judge::{Judge, Verdict, batch};
use crate::tasks::finetuning_task::{
    Answer, Collator, Encoded, Examples, FinetuningTask, Input, Judged, Row,
};
use crate::tasks::run::{Beginning, Data, Scores, Setting};
use crate::tasks::shuffled::Shuffled;
use crate::tasks::taught::Taught;
use crate::telemetry::Progress;
use base::error::Problem;
use base::fs;
use base::fs::StagedFile;
use base::quantity::format_bytes;
use base::scores::Outcomes;
use data::batches::StepBatches;
use data::tokenizer::Tokenizer;
use model::distributed::World;

/// Size of a predictions file from which on a note says that it is being written, since that takes long.
const ANNOUNCED_BYTES: u64 = 64 << 20;

/// Training and evaluation examples, and the results of the latest evaluation.
pub struct TrainingData<'a, T: FinetuningTask> {
    examples: &'a Examples<T>,
    /// The labels, with what was fitted to the latest evaluation.
    target: T,
    progress: Progress,
    train: Vec<Encoded<T>>,
    /// The probabilities that a teacher gives each training example, if there is one.
    taught: Option<Arc<Taught>>,
    eval: Scored<'a, T>,
    /// The prediction for each evaluation example, and the loss, from the latest evaluation.
    answers: Vec<Answer<T>>,
    loss: f64,
    test: Option<Scored<'a, T>>,
    /// The result of each test example, once the final model was scored on them.
    test_outcomes: Option<Outcomes>,
    collator: Collator<T>,
    order: Shuffled,
    /// The processes that share an evaluation.
    world: World,
    eval_rows: usize,
}

/// Examples that the model is scored on.
struct Scored<'a, T: FinetuningTask> {
    set: &'a Set<Row<T>, T::Gold>,
    encoded: Vec<Encoded<T>>,
}

impl<T: FinetuningTask> Scored<'_, T> {
    /// The examples with predictions for them; none before the first evaluation.
    fn judged<'b>(&'b self, answers: &'b [Answer<T>], loss: f64) -> Judged<'b, T> {
        Judged { rows: &self.set.rows, gold: &self.set.gold, answers, loss }
    }
}

impl<'a, T: FinetuningTask> TrainingData<'a, T> {
    /// Tokenizes all examples, and prints notes about unusual ones.
    pub(super) fn encode(
        examples: &'a Examples<T>,
        taught: Option<Arc<Taught>>,
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
        let mut test = None;
        if let Some(set) = &examples.test {
            let encoded = encode::<T>("test", set, tokenizer, &collator, progress)?;
            test = Some(Scored { set, encoded });
        }
        Ok(Self {
            train,
            taught,
            eval: Scored { set: &examples.eval, encoded: eval },
            answers: Vec::new(),
            loss: f64::NAN,
            test,
            test_outcomes: None,
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
        self.test_outcomes.clone()
    }

    /// The evaluation examples with the predictions of the latest evaluation.
    fn judged(&self) -> Judged<'_, T> {
        self.eval.judged(&self.answers, self.loss)
    }

    /// Predicts examples with the model of `task`; `None` if it was interrupted.
    fn verdict(
        &self,
        scored: &Scored<'_, T>,
        task: &dyn Task,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Verdict<T>>> {
        let judge = Judge {
            target: &self.target,
            task,
            collator: &self.collator,
            world: self.world,
            batch_size: self.eval_rows,
        };
        judge.verdict(&scored.set.rows, &scored.encoded, Some(&scored.set.gold), interrupted)
    }
}

fn encode<T: FinetuningTask>(
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
pub(super) fn write_lines<T: FinetuningTask>(
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

impl<T: FinetuningTask> Data for TrainingData<'_, T> {
    fn start(&mut self, beginning: Beginning) -> Result<()> {
        self.order.start(beginning.cursor);
        Ok(())
    }

    fn next_step(&mut self) -> Result<StepBatches> {
        let Self { order, train, taught, collator, examples, .. } = self;
        let Examples { target, train: Set { gold, .. }, .. } = examples;
        Ok(order.next_step(train, |rows, first_row| {
            let mut batch = batch(target, gold, collator, rows, first_row);
            if let Some(taught) = &taught {
                let places = rows.iter().flat_map(|encoded| T::Input::places(encoded));
                batch.teacher =
                    places.flat_map(|place| &taught[place.example]).map(|share| share.to_bits()).collect();
            }
            batch
        }))
    }

    fn evaluate(&mut self, task: &dyn Task, interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        let Some(verdict) = self.verdict(&self.eval, task, interrupted)? else { return Ok(None) };
        self.answers = verdict.answers;
        self.loss = verdict.loss.mean();
        let judged = self.eval.judged(&self.answers, self.loss);
        self.target.fit(&judged);
        Ok(Some(self.target.scores(&judged)))
    }

    fn test(&mut self, task: &dyn Task, interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        let Some(test) = &self.test else { return Ok(Some(Scores::new())) };
        let Some(verdict) = self.verdict(test, task, interrupted)? else { return Ok(None) };
        let judged = test.judged(&verdict.answers, verdict.loss.mean());
        let scores = self.target.scores(&judged);
        self.test_outcomes = Some(self.target.outcomes(&judged));
        Ok(Some(scores.into_iter().map(|(name, value)| (format!("test_{name}"), value)).collect()))
    }

    fn score_names(&self) -> Vec<String> {
        self.target.score_names()
    }

    fn wants_evaluation(&self) -> bool {
        self.answers.is_empty()
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
