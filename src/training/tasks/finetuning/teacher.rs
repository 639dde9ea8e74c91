//! Distillation: the probabilities that another model, the teacher, gives the labels of the examples.
//!
//! The teacher is not trained, so it predicts each example once, before the first step: its memory is free
//! again when the student is trained, and its tokenizer and family may be others.

use std::sync::Arc;

use anyhow::Result;

use crate::machine::Machine;
use crate::tasks::finetuning::Opened;
use crate::tasks::finetuning_task::{Examples, FinetuningTask, Input};
use crate::tasks::run::Setting;
use crate::tasks::sequence::labels::listed;
use crate::tasks::taught::Taught;
use crate::tasks::trained::percent;
use crate::telemetry::Unit;
use base::error::Problem;
use base::quantity::format_count;
use config::FinetuneConfig;
use model::interop::{PretrainedFolder, read_folder};

/// Batches that are predicted between two checks for a signal.
const BATCHES_AT_ONCE: usize = 16;

/// A model that knows the labels of the examples.
pub struct Teacher {
    /// Its folder.
    pub folder: PretrainedFolder,
    /// The place of each label of the examples among those of the teacher.
    places: Vec<usize>,
}

impl<T: FinetuningTask> Examples<T> {
    /// Returns the teacher; `None` if the configuration has none. It is an error if the teacher
    /// is not a model of this task, or has other labels.
    pub fn teacher(&self, config: &FinetuneConfig) -> Result<Option<Teacher>> {
        let Some(distillation) = &config.distillation else { return Ok(None) };
        let folder = read_folder(&distillation.teacher)?;
        let Some(names) = folder.id2label.as_ref().filter(|_| folder.head == T::HEAD) else {
            let problem = Problem::usage(format!("`{}` holds no {}", folder.path.display(), T::MODEL));
            let hint = "fine-tune the teacher first, with `mlmtrain finetune` on the same labels";
            return Err(problem.at("distillation.teacher").hint(hint).into());
        };
        let places = places(names, self.target.names())?;
        Ok(Some(Teacher { folder, places }))
    }

    /// Returns what the teacher predicts for the training examples; `None` if the configuration has none.
    pub(super) fn taught(
        &self,
        config: &FinetuneConfig,
        setting: &Setting<'_>,
    ) -> Result<Option<Arc<Taught>>> {
        let Some(teacher) = self.teacher(config)? else { return Ok(None) };
        let taught = self.teachers.taught(&teacher.folder.path, || self.predicted_by(&teacher, setting))?;
        Ok(Some(taught))
    }

    fn predicted_by(&self, teacher: &Teacher, setting: &Setting<'_>) -> Result<Taught> {
        let Setting { training, machine: Machine { device, world, .. }, progress, .. } = *setting;
        let Teacher { folder, places } = teacher;
        let opened = Opened::<T>::load(&folder.path, device)?;
        let batch_size = training.per_device_eval_batch_size;
        let judge = opened.judge(*world, batch_size);
        let rows = &self.train.rows;
        let stage = progress.stage("predictions of the teacher", Unit::Items, Some(rows.len() as u64));
        let mut unusual = <T::Input as Input>::Unusual::default();
        let mut taught = Taught::with_capacity(rows.len());
        for rows in rows.chunks(batch_size * BATCHES_AT_ONCE) {
            let (encoded, more) = T::Input::encode(&opened.tokenizer, &opened.collator, rows)?;
            unusual += more;
            let Some(verdict) = judge.verdict(rows, &encoded, None, setting.is_interrupted)? else {
                return Err(Problem::new("the predictions of the teacher were interrupted").into());
            };
            if let Some(example) = verdict.not_finite {
                let example = taught.len() + example + 1;
                let message =
                    format!("the outputs of the teacher for training example {example} are not finite");
                return Err(Problem::new(message).at(folder.path.display()).into());
            }
            for answer in &verdict.answers {
                let probabilities = T::probabilities(answer);
                taught.push(places.iter().map(|&place| probabilities[place]).collect());
            }
            stage.advance(rows.len() as u64);
        }
        stage.finish(&self.agreement(&taught));
        if let Some(note) = T::Input::note_of_predict(rows.len(), &unusual) {
            progress.note_once(&format!("the teacher: {}", note.trim_start_matches("note: ")));
        }
        Ok(taught)
    }

    /// Text that says how many examples have the label that the teacher finds most likely.
    fn agreement(&self, taught: &Taught) -> String {
        let mut labels = Vec::new();
        self.train.gold.iter().for_each(|gold| self.target.push_labels(gold, 0, &mut labels));
        let agree = taught.iter().zip(&labels).filter(|(probabilities, label)| {
            let own = probabilities[**label as usize];
            probabilities.iter().all(|other| *other <= own)
        });
        let (agree, all) = (agree.count(), taught.len());
        let share = percent(agree as f64 / all.max(1) as f64);
        format!("{share} agree with the labels of {} examples", format_count(all as u64))
    }
}

/// Returns the place of each label of the student among those of the teacher.
fn places(of_teacher: &[String], of_student: &[String]) -> Result<Vec<usize>, Problem> {
    let places: Option<Vec<usize>> =
        of_student.iter().map(|name| of_teacher.iter().position(|other| other == name)).collect();
    places.filter(|places| places.len() == of_teacher.len()).ok_or_else(|| {
        let message =
            format!("has the labels {}, and the examples have {}", listed(of_teacher), listed(of_student));
        let hint = "a teacher is fine-tuned on the same labels; `data.labels` gives those of the examples";
        Problem::usage(message).at("distillation.teacher").hint(hint)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
        names.map(str::to_string).to_vec()
    }

    #[test]
    fn labels_are_found_by_name_and_must_be_the_same_ones() {
        let teacher = names(["a", "b", "c"]);
        assert_eq!(places(&teacher, &names(["c", "a", "b"])).unwrap(), [2, 0, 1]);
        for other in [names(["a", "b"]).as_slice(), &names(["a", "b", "d"]), &names(["a", "b", "c", "d"])] {
            let problem = places(&teacher, other).expect_err("other labels").to_string();
            assert!(problem.starts_with("distillation.teacher: has the labels `a`, `b`, `c`"), "{problem}");
        }
    }
}
