//! A trained model as `evaluate` and `predict` use it.

use std::path::Path;

use anyhow::Result;
use candle_core::Device;

use crate::tasks::Supervised;
use crate::tasks::finetuning::judge::Judge;
use crate::tasks::finetuning::training_data::write_lines;
use crate::tasks::finetuning::{Supervisor, model_of};
use crate::tasks::finite::not_finite;
use crate::tasks::labelled::InputFile;
use crate::tasks::target::{Collator, Encoded, Input, Judged, Row, Target};
use crate::tasks::trained::{Answers, Evaluation, Scored, Trained};
use base::error::Problem;
use base::fs::StagedFile;
use data::tokenizer::Tokenizer;
use model::distributed::World;
use model::interop::read_folder;

/// A model with its tokenizer and labels.
pub struct Opened<T: Target> {
    task: Supervisor<T>,
    tokenizer: Tokenizer,
    collator: Collator<T>,
    target: T,
}

impl<T: Target> Opened<T> {
    /// Loads a trained model. Examples are cut at the `model_max_length` of its `tokenizer_config.json`, the
    /// length used in training; without one, at the longest sequence that the model takes.
    pub fn load(path: &Path, device: &Device) -> Result<Self> {
        let folder = read_folder(path)?;
        let Some(names) = folder.id2label.clone().filter(|_| folder.head == T::HEAD) else {
            return Err(Problem::new(format!("holds no {}", T::MODEL))
                .at(path.display())
                .hint("make one with `mlmtrain finetune`")
                .into());
        };
        let target = T::of_model(path, names)?;
        let longest = folder.config.max_sequence_length();
        let (tokenizer, collator) = T::Input::framing(&folder, longest, None)?;
        let model = model_of::<T>(&folder, device)?;
        folder.fill(&model.parameters, false)?;
        let length = tokenizer.model_max_length();
        let collator = length.map_or(collator, |length| T::Input::cut_at(collator, length));
        Ok(Self { task: Supervised { model }, tokenizer, collator, target })
    }

    fn judge(&self, batch_size: usize) -> Judge<'_, T> {
        let Self { task, collator, target, .. } = self;
        Judge { target, task, collator, world: World::ALONE, batch_size }
    }
}

/// Refuses names for the numbers of a file if the model knows its labels by numbers: it could not use them.
fn require_names(known: &[String], given: &[String]) -> Result<(), Problem> {
    let number = known.iter().find(|label| label.parse::<i64>().is_ok());
    match number.filter(|_| !given.is_empty()) {
        Some(number) => Err(Problem::usage(format!(
            "names the numbers in a file for a model whose labels have names, and this model has `{number}`"
        ))
        .at("--labels")
        .hint("leave it out")),
        None => Ok(()),
    }
}

impl<T: Target> Trained for Opened<T> {
    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<Scored> {
        let Self { target, .. } = self;
        require_names(target.names(), evaluation.labels)?;
        let (rows, notes) = target.evaluated(evaluation)?;
        let gold = target.gold(evaluation.data, &rows)?;
        let file = evaluation.predictions.map(StagedFile::create).transpose()?;
        let (encoded, unusual) = T::Input::encode(&self.tokenizer, &self.collator, &rows)?;
        let judge = self.judge(evaluation.batch_size);
        let first: Vec<&Encoded<T>> = encoded.iter().take(evaluation.batch_size).collect();
        evaluation.dump_logits(&self.task, &judge.batch(&first, Some(&gold)))?;
        let verdict = judge.verdict(&rows, &encoded, Some(&gold), &|| false)?.expect("nothing interrupts it");
        if let Some(example) = verdict.not_finite {
            return Err(not_finite(evaluation.example(example)).into());
        }
        let judged =
            Judged { rows: &rows, gold: &gold, answers: &verdict.answers, loss: verdict.loss.mean() };
        if let (Some(path), Some(file)) = (evaluation.predictions, file) {
            write_lines(path, file, target, &judged, &|| false)?;
        }
        let mut scored = Scored::default();
        scored.warn_if_uniform(target.uniform_answers(&judged));
        T::Input::count(&rows, &mut scored);
        target.report(&judged, &mut scored);
        T::Input::count_unusual(&unusual, &mut scored);
        scored.lines.extend(notes);
        target.explain(&judged, &mut scored);
        Ok(scored)
    }

    fn predict(&self, input: &InputFile<'_>, batch_size: usize, answers: &mut dyn Answers) -> Result<()> {
        self.target.notes().iter().for_each(|note| answers.note(note));
        let judge = self.judge(batch_size);
        let mut examples = 0;
        let mut unusual = <T::Input as Input>::Unusual::default();
        let mut questions = T::Input::questions(input)?.peekable();
        while questions.peek().is_some() {
            let batch = questions.by_ref().take(batch_size).collect::<Result<Vec<_>>>()?;
            let rows: Vec<Row<T>> = batch.iter().map(T::Input::row).collect();
            let (encoded, more) = T::Input::encode(&self.tokenizer, &self.collator, &rows)?;
            examples += batch.len();
            unusual += more;
            let verdict = judge.verdict(&rows, &encoded, None, &|| false)?.expect("nothing interrupts it");
            if let Some(example) = verdict.not_finite {
                return Err(not_finite(T::Input::origin(&batch[example]).place.clone()).into());
            }
            for ((question, row), answer) in batch.iter().zip(rows).zip(&verdict.answers) {
                let found = self.target.answer(question, row, answer)?;
                answers.answer(found, T::Input::origin(question))?;
            }
        }
        if examples == 0 {
            answers.note("the input has no rows to answer");
        }
        if let Some(note) = T::Input::note_of_predict(examples, &unusual) {
            answers.note(&note);
        }
        Ok(())
    }

    fn notes(&self) -> &[String] {
        self.tokenizer.notes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_for_numbers_are_refused_where_the_labels_are_numbers() {
        let [words, numbers] = [["no", "yes"], ["0", "1"]].map(|names| names.map(str::to_string));
        assert!(require_names(&words, &words).is_ok() && require_names(&numbers, &[]).is_ok());
        let problem = require_names(&numbers, &words).expect_err("they would be ignored");
        assert!(problem.to_string().contains("this model has `0`"), "{problem}");
    }
}
