//! Decides where a run starts: afresh, from a checkpoint, or not at all because it is complete.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::tasks::run::Inputs;
use crate::telemetry::Progress;
use crate::train::checkpoint_files::{CONFIG, Resumed};
use base::error::{Problem, Problems};
use base::fs;
use config::defaults::Derived;
use config::{
    Change, DataConfig, PrecisionConfig, Shuffle, TrainingConfig, compare_for_resume, defaults,
    refuse_other_length, with_former_defaults,
};
use model::checkpoint::{Checkpoint, CheckpointStore};

/// The start that the user asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// The newest valid checkpoint, or afresh if there is none.
    Auto,
    /// Afresh; an error if the folder contains anything of an earlier run.
    Fresh,
    /// As [`Self::Auto`], in a folder that only one command writes to and that may be begun again: a cell of
    /// a sweep, whose weights are not kept.
    Again,
    /// This checkpoint.
    At(PathBuf),
}

/// Keys that can give a complete run more to do.
const MORE_TO_DO: [&str; 6] = [
    "training.max_steps",
    "training.num_train_epochs",
    "training.max_train_time",
    "run.budget_usd",
    "run.deadline",
    "training.early_stopping_patience",
];

/// The checkpoint that a run resumes from.
pub struct Found {
    /// The trainer's parts of the checkpoint.
    pub resumed: Resumed,
    /// True if the run of the checkpoint is finished, and the configuration asks for no more steps.
    pub is_complete: bool,
}

/// Finds the checkpoint to resume from, and prints a note for each changed key of the configuration.
pub fn find<C: Serialize + DeserializeOwned>(
    start: &Start,
    store: &CheckpointStore,
    config: &C,
    progress: &Progress,
) -> Result<Option<Found>> {
    let resumed = match start {
        Start::At(path) => Some(Resumed::read(Checkpoint::open(path)?)?),
        Start::Auto | Start::Again => newest(store, progress)?,
        Start::Fresh => match store.steps()?.last() {
            None => None,
            Some(step) => {
                return Err(Problem::usage("holds checkpoints of another run")
                    .at(store.path_of(*step).display())
                    .hint("choose another `run.output_dir`, remove the folder, or leave out `--resume never`")
                    .into());
            }
        },
    };
    let Some(resumed) = resumed else { return Ok(None) };
    let place = resumed.checkpoint.path().display().to_string();
    let was_pretraining = is_pretraining(&resumed.config);
    let current = serde_json::to_value(config)?;
    let is_pretraining = is_pretraining(&current);
    if was_pretraining != is_pretraining {
        let command = if was_pretraining { "pretrain" } else { "finetune" };
        return Err(Problem::usage(format!("is a checkpoint of `mlmtrain {command}`, another kind of run"))
            .at(&place)
            .hint("choose another `run.output_dir`")
            .into());
    }
    let saved: C = serde_json::from_value(resumed.config.clone()).map_err(|e| {
        Problem::new(format!("was saved with a configuration that this version cannot read: {e}")).at(&place)
    })?;
    let changes = compare_for_resume(&saved, config)?;
    if resumed.state.finished && !is_pretraining {
        refuse_other_length(&changes, &current)?;
    }
    for change in &changes {
        progress.note(&format!("note: `{}` was {} and is {} now", change.path, change.old, change.new));
    }
    let complete = resumed.state.finished && !ask_for_more(&changes);
    Ok(Some(Found { resumed, is_complete: complete }))
}

/// Returns true if one of the changes can give a complete run more to do.
pub(super) fn ask_for_more(changes: &[Change]) -> bool {
    changes.iter().any(|change| MORE_TO_DO.contains(&change.path.as_str()))
}

/// Returns true for a configuration of pretraining: only that has `data.sources`.
pub(super) fn is_pretraining(config: &Value) -> bool {
    !config["data"]["sources"].is_null()
}

/// Returns an error if the inputs differ from those with which the run began, or, for a run that starts from
/// a checkpoint of another run, from those of that run.
pub fn agree_on_inputs(found: Option<&Found>, parent: Option<&Resumed>, inputs: &Inputs) -> Result<()> {
    if let Some(found) = found {
        let hint = "restore it to continue this run, or start a new one in another `run.output_dir`";
        agree(&found.resumed, inputs, "when this run began", hint)?;
    }
    let hint = "a decay goes on with the tokenizer and the data of its checkpoint: set \
                `data.prepared_dir` to where they lie";
    parent.map_or(Ok(()), |parent| agree(parent, inputs, "in the run of the checkpoint", hint))
}

fn agree(resumed: &Resumed, inputs: &Inputs, when: &str, hint: &str) -> Result<()> {
    let keys: BTreeSet<&String> = resumed.inputs.keys().chain(inputs.keys()).collect();
    let changed = keys.into_iter().filter(|key| resumed.inputs.get(*key) != inputs.get(*key));
    let problems: Vec<Problem> = changed
        .map(|key| Problem::usage(format!("its content is not what it was {when}")).at(key).hint(hint))
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(Problems(problems).into()) }
}

/// Replaces the precision `auto` with the number type of the newest checkpoint of these runs, if there is
/// one: a run keeps its type even if it resumes on another machine.
pub fn keep_compute(
    precision: &mut PrecisionConfig,
    start: &Start,
    folders: impl IntoIterator<Item = PathBuf>,
) -> Result<()> {
    if precision.compute.known().is_some() {
        return Ok(());
    }
    let saved = newest_config(start, folders)?;
    let compute = saved.map(|saved| serde_json::from_value(saved["precision"]["compute"].clone()));
    if let Some(Ok(compute)) = compute {
        precision.compute = compute;
    }
    Ok(())
}

/// Sets `data.shuffle` if the configuration leaves it open: to the value of the newest checkpoint of the run,
/// or to rows in a new run.
pub fn keep_shuffle(data: &mut DataConfig, start: &Start, folder: PathBuf) -> Result<()> {
    if data.shuffle.is_none() {
        let saved = newest_config(start, [folder])?;
        let kept = saved.map(|saved| serde_json::from_value(saved["data"]["shuffle"].clone()));
        data.shuffle = kept.and_then(Result::ok).unwrap_or(Some(Shuffle::Rows));
    }
    Ok(())
}

/// Sets the keys of `derived` to their values in the newest checkpoint of the run. Returns false without a
/// checkpoint.
pub fn keep_derived(
    training: &mut TrainingConfig,
    derived: &[Derived],
    start: &Start,
    folder: PathBuf,
) -> Result<bool> {
    let saved = newest_config(start, [folder])?;
    if let Some(saved) = &saved {
        defaults::keep_derived(training, derived, saved);
    }
    Ok(saved.is_some())
}

/// The configuration of the newest checkpoint of these runs, if there is one.
fn newest_config(start: &Start, folders: impl IntoIterator<Item = PathBuf>) -> Result<Option<Value>> {
    let checkpoint = match start {
        Start::Fresh => None,
        Start::At(path) => Some(path.clone()),
        Start::Auto | Start::Again => {
            folders.into_iter().map(|folder| newest_path(&folder)).find_map(Result::transpose).transpose()?
        }
    };
    let Some(path) = checkpoint.map(|path| path.join(CONFIG)).filter(|path| fs::exists(path)) else {
        return Ok(None);
    };
    let saved = serde_json::from_slice(&fs::read_capped(&path, CONFIG_CAP_BYTES)?)
        .map_err(|e| Problem::new(format!("is not valid JSON: {e}")).at(path.display()))?;
    Ok(Some(with_former_defaults(saved)))
}

const CONFIG_CAP_BYTES: u64 = 16 << 20;

/// The path of the newest checkpoint in the folder of a run.
fn newest_path(folder: &Path) -> Result<Option<PathBuf>> {
    let store = CheckpointStore::new(folder);
    Ok(store.steps()?.last().map(|&step| store.path_of(step)))
}

/// The newest readable checkpoint, with a warning for each newer one that cannot be used.
fn newest(store: &CheckpointStore, progress: &Progress) -> Result<Option<Resumed>> {
    let (resumed, refused) = store.newest(Resumed::read)?;
    let older = if resumed.is_some() { "; an older checkpoint is used" } else { "" };
    for why in &refused {
        progress.warn(&format!("{why}{older}"));
    }
    if resumed.is_none() && !refused.is_empty() {
        return Err(Problem::new("none of the checkpoints can be used")
            .hint("start again in another `run.output_dir`, or restore a checkpoint")
            .into());
    }
    Ok(resumed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_resumed_run_keeps_what_it_shuffles_and_a_new_one_shuffles_rows() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(kept(folder.path(), None, &Start::Auto), Shuffle::Rows);
        let trainer = CheckpointStore::new(folder.path()).path_of(40).join("trainer");
        std::fs::create_dir_all(&trainer).unwrap();
        // Configurations from before the key existed, and with the key.
        for (saved, expected) in [
            (json!({"data": {"sources": []}}), Shuffle::Documents),
            (json!({"data": {"sources": [], "shuffle": "documents"}}), Shuffle::Documents),
            (json!({"data": {"sources": [], "shuffle": "rows"}}), Shuffle::Rows),
        ] {
            std::fs::write(trainer.join("config.json"), saved.to_string()).unwrap();
            assert_eq!(kept(folder.path(), None, &Start::Auto), expected, "{saved}");
            assert_eq!(kept(folder.path(), Some(Shuffle::Rows), &Start::Auto), Shuffle::Rows);
            assert_eq!(kept(folder.path(), None, &Start::Fresh), Shuffle::Rows);
            let at = Start::At(trainer.parent().unwrap().to_path_buf());
            assert_eq!(kept(folder.path(), None, &at), expected, "{saved}");
        }
    }

    /// The order of shuffling of a run in `folder`, `given` in its configuration.
    fn kept(folder: &Path, given: Option<Shuffle>, start: &Start) -> Shuffle {
        let mut data = DataConfig { shuffle: given, ..DataConfig::default() };
        keep_shuffle(&mut data, start, folder.to_path_buf()).unwrap();
        data.shuffle.unwrap()
    }
}
