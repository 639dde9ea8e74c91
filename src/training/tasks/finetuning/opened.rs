//! A trained model as `evaluate` and `predict` use it.

use std::path::Path;

use anyhow::Result;
use candle_core::Device;

use crate::tasks::Supervised;
use crate::tasks::finetuning::judge::Judge;
use crate::tasks::finetuning::training_data::write_lines;
use crate::tasks::finetuning::{Supervisor, model_of};
use crate::tasks::finetuning_task::{Collator, Encoded, FinetuningTask, Input, Judged, Row};
use crate::tasks::finite::not_finite;
use crate::tasks::labelled::InputFile;
use crate::tasks::labelled::tags::is_tag;
use crate::tasks::sequence::labels::listed;
use crate::tasks::trained::{Answers, Evaluation, Scored, Trained, require_json_lines};
use base::error::Problem;
use base::families::HeadKind;
use base::fs::StagedFile;
use config::OnBadRecord;
use data::tokenizer::Tokenizer;
use model::distributed::World;
use model::interop::read_folder;

/// A model with its tokenizer and labels.
pub struct Opened<T: FinetuningTask> {
    task: Supervisor<T>,
    pub(super) tokenizer: Tokenizer,
    pub(super) collator: Collator<T>,
    target: T,
}

impl<T: FinetuningTask> Opened<T> {
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

    /// Predicts with this model; the processes of `world` share the work.
    pub(super) fn judge(&self, world: World, batch_size: usize) -> Judge<'_, T> {
        let Self { task, collator, target, .. } = self;
        Judge { target, task, collator, world, batch_size }
    }
}

/// Refuses names for the numbers of a file if the model knows its labels by numbers, and names that are not
/// the labels of the model, each once. Tags may be others, because those of a file may have another scheme.
fn require_names(known: &[String], given: &[String], are_tags: bool) -> Result<(), Problem> {
    if given.is_empty() {
        return Ok(());
    }
    if let Some(number) = known.iter().find(|label| label.parse::<i64>().is_ok()) {
        return Err(Problem::usage(format!(
            "names the numbers in a file for a model whose labels have names, and this model has `{number}`"
        ))
        .at("--labels")
        .hint("leave it out"));
    }
    let other = given.iter().find(|name| !(known.contains(name) || are_tags && is_tag(name)));
    let lacking = known.iter().find(|name| !are_tags && !given.contains(name));
    let message = match (other, lacking) {
        (Some(other), _) => format!("`{other}` is no label of the model"),
        (None, Some(lacking)) => format!("does not name `{lacking}`, a label of the model"),
        (None, None) if !are_tags && given.len() > known.len() => "names a label twice".to_string(),
        (None, None) => return Ok(()),
    };
    Err(Problem::usage(message).at("--labels").hint(format!(
        "name its labels in the order of the numbers in the file, or leave the flag out if the file has \
         names; they are {}",
        listed(known)
    )))
}

/// Returns the extensions of the files of predictions that a run of a task writes.
fn extensions<T: FinetuningTask>() -> Vec<&'static str> {
    T::PREDICTIONS.iter().filter_map(|name| Path::new(*name).extension()?.to_str()).collect()
}

impl<T: FinetuningTask> Trained for Opened<T> {
    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<Scored> {
        let Self { target, .. } = self;
        evaluation.refuse_all_but(T::FLAGS, &format!("a {}", T::MODEL))?;
        require_names(target.names(), evaluation.labels, T::HEAD == HeadKind::TokenClassification)?;
        if let Some(path) = evaluation.predictions {
            require_json_lines("--predictions", path, &extensions::<T>())?;
        }
        let (rows, notes) = target.evaluated(evaluation)?;
        let gold = target.gold(evaluation.data, &rows)?;
        let file = evaluation.predictions.map(StagedFile::create).transpose()?;
        let (encoded, unusual) = T::Input::encode(&self.tokenizer, &self.collator, &rows)?;
        let judge = self.judge(World::ALONE, evaluation.batch_size);
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
        // Missing rows are reported in every form of output.
        match evaluation.on_bad_record {
            OnBadRecord::Skip => scored.warnings.extend(notes),
            OnBadRecord::Fail => scored.lines.extend(notes),
        }
        target.explain(&judged, &mut scored);
        Ok(scored)
    }

    fn predict(&self, input: &InputFile<'_>, batch_size: usize, answers: &mut dyn Answers) -> Result<()> {
        self.target.notes().iter().for_each(|note| answers.note(note));
        let judge = self.judge(World::ALONE, batch_size);
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
    fn names_for_numbers_are_those_of_a_model_whose_labels_are_no_numbers() {
        let [words, numbers] = [["no", "yes"], ["0", "1"]].map(|names| names.map(str::to_string));
        let turned = ["yes", "no"].map(str::to_string);
        assert!(require_names(&words, &turned, false).is_ok() && require_names(&numbers, &[], false).is_ok());
        let problem = require_names(&numbers, &words, false).expect_err("they would be ignored");
        assert!(problem.to_string().contains("this model has `0`"), "{problem}");
        let other = ["no".to_string(), "perhaps".to_string()];
        let problem = require_names(&words, &other, false).expect_err("another label");
        let problem = problem.to_string();
        assert!(
            problem.starts_with("--labels: `perhaps` is no label of the model\n  hint: name"),
            "{problem}"
        );
        assert!(problem.ends_with("they are `no`, `yes`"), "{problem}");
        let problem = require_names(&words, &words[..1], false).expect_err("too few");
        assert!(problem.to_string().contains("does not name `yes`, a label of the model"), "{problem}");
        let twice = ["no", "yes", "no"].map(str::to_string);
        let problem = require_names(&words, &twice, false).expect_err("too many");
        assert!(problem.to_string().contains("names a label twice"), "{problem}");
    }

    #[test]
    fn names_of_tags_may_be_those_of_another_scheme() {
        let [known, bioes] = [["O", "I-PER"], ["O", "S-PER"]].map(|names| names.map(str::to_string));
        assert!(
            require_names(&known, &bioes, true).is_ok() && require_names(&known, &known[..1], true).is_ok()
        );
        let problem = require_names(&known, &["a".to_string()], true).expect_err("no tag");
        assert!(problem.to_string().contains("`a` is no label of the model"), "{problem}");
    }
}
