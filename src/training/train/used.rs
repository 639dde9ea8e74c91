//! Folders that a run has already written to: the run resumes there from a checkpoint, or the folder is
//! refused.
//!
//! A folder without checkpoints counts as used as well: they may have been deleted to save space, and the
//! final model kept.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::telemetry::{METRICS, MetricsLog, Progress};
use crate::train::checkpoint_files::STATE;
use crate::train::results;
use crate::train::resume::{Start, ask_for_more, is_pretraining};
use crate::train::run_folder::{FINAL, MACHINE};
use base::error::Problem;
use base::fs;
use base::fs::Output;
use config::{AnyLoaded, Change, compare_for_resume, for_seed_folder, refuse_other_length, to_yaml};
use model::checkpoint::{Checkpoint, CheckpointStore};

/// The configuration file of a run in its folder.
const CONFIG_YAML: &str = "config.yaml";

/// Files and folders that a run writes at its end.
const ENDINGS: [&str; 6] = [
    FINAL,
    "all_results.json",
    "eval_results.json",
    "train_results.json",
    "predictions.jsonl",
    "predictions.conll",
];

/// Files and folders that a run writes when it begins.
const BEGINNINGS: [&str; 4] = [CONFIG_YAML, MACHINE, METRICS, "runs"];

const CAP_BYTES: u64 = 1 << 20;

/// Refuses to begin a run in a folder without checkpoints where another run left something. A run that was
/// stopped before its first checkpoint may begin again; its records are kept under another name if they are
/// longer than that.
pub fn refuse<C: Serialize + DeserializeOwned>(
    start: &Start,
    output: &Path,
    config: &C,
    save_steps: u64,
    progress: &Progress,
) -> Result<()> {
    if *start == Start::Again || !begins_again(start, output, config)? {
        return Ok(());
    }
    // After that many steps the first checkpoint was complete, or could not be written.
    let metrics = output.join(METRICS);
    if save_steps > 0 && last_step(&metrics)? > 2 * save_steps {
        let kept = fs::free_name(output, "metrics-kept-", ".jsonl");
        fs::rename(&metrics, &kept)?;
        progress.warn(&format!(
            "there is no checkpoint of the run in `{}`: it begins again, and its records so far are kept as `{}`",
            output.display(),
            kept.display()
        ));
    }
    Ok(())
}

/// Refuses the folder of another run as [`refuse`] and a resume would, but writes nothing: for dry runs, and
/// before the data are prepared in the folder.
pub fn refuse_other_run<C: Serialize + DeserializeOwned>(
    start: &Start,
    output: &Path,
    config: &C,
) -> Result<()> {
    if !matches!(start, Start::Auto | Start::Fresh) {
        return Ok(());
    }
    let store = CheckpointStore::new(output);
    let Some(newest) = store.steps()?.last().copied() else {
        return begins_again(start, output, config).map(drop);
    };
    let changes = changes_since(output, config)?;
    let current = serde_json::to_value(config)?;
    if is_finished(&store.path_of(newest)) && !is_pretraining(&current) {
        refuse_other_length(&changes, &current)?;
    }
    Ok(())
}

/// Describes what a run would do in a folder with an earlier run, for a dry run; `None` for a folder without
/// one. An error if the folder cannot be written to. To be called after [`refuse_other_run`].
pub fn outlook<C: Serialize + DeserializeOwned>(
    start: &Start,
    output: &Path,
    config: &C,
) -> Result<Option<String>> {
    fs::require_writable_folder(output)?;
    if fs::is_locked(output) {
        return Ok(Some("in use by another process: a run would be refused".to_string()));
    }
    let store = CheckpointStore::new(output);
    let newest = match start {
        Start::At(path) => {
            Checkpoint::open(path)?;
            return Ok(Some(format!("resumes from `{}`", path.display())));
        }
        Start::Fresh => None,
        Start::Auto | Start::Again => store.steps()?.last().copied(),
    };
    let Some(step) = newest else { return Ok(None) };
    let has_results = fs::exists(&output.join(FINAL)) && results::are_whole(&results::read(output)?);
    let is_complete =
        has_results && is_finished(&store.path_of(step)) && !ask_for_more(&changes_since(output, config)?);
    Ok(Some(if is_complete {
        format!("complete already, at step {step}: prints its results")
    } else {
        format!("resumes after step {step}")
    }))
}

/// Returns the keys that differ from the configuration that the run of a folder has written, if it has
/// written one.
fn changes_since<C: Serialize + DeserializeOwned>(output: &Path, config: &C) -> Result<Vec<Change>> {
    if is_run(output) { require_same(output, config) } else { Ok(Vec::new()) }
}

/// Returns true if an ordinary run has begun in this folder, with one seed or with several.
pub fn has_run(output: &Path) -> Result<bool> {
    Ok(is_run(output) || seed_folder(output)?.is_some())
}

/// Returns true for the folder of a run that has written its configuration and its machine.
fn is_run(folder: &Path) -> bool {
    [CONFIG_YAML, MACHINE].iter().all(|name| fs::exists(&folder.join(name)))
}

/// Returns true if the run of this checkpoint is finished. A checkpoint that cannot be read counts as
/// unfinished: a resume reports it.
fn is_finished(checkpoint: &Path) -> bool {
    let state = fs::read_text_capped(&checkpoint.join(STATE), CAP_BYTES).unwrap_or_default();
    serde_json::from_str::<Value>(&state).is_ok_and(|state| state["finished"] == true)
}

/// Returns true if a run was stopped in this folder before its first checkpoint and may begin again, false
/// for an unused folder; fails for the folder of another run.
fn begins_again<C: Serialize + DeserializeOwned>(start: &Start, output: &Path, config: &C) -> Result<bool> {
    if let Some(name) = first_existing(output, &ENDINGS) {
        return Err(used(output, name, "of another run, or of one whose checkpoints are gone").into());
    }
    // A run may diverge before its first checkpoint, and would do so again.
    let beginning = first_existing(output, &BEGINNINGS).map(str::to_string);
    let Some(name) = beginning.or(diverged(output)?) else { return Ok(false) };
    if *start != Start::Auto {
        return Err(used(output, &name, "of another run").into());
    }
    require_same(output, config)?;
    Ok(true)
}

/// Refuses a folder for several runs at once, or for a table of them, if these files were not written by such
/// a command. To be called before the folder is locked: an existing lock file shows that a command has worked
/// there.
pub fn refuse_for_many(output: &Path, files: &[&str]) -> Result<()> {
    if fs::has_lock(output) {
        return Ok(());
    }
    let paths: Vec<_> = files.iter().map(|name| output.join(name)).collect();
    let outputs: Vec<Output<'_>> = paths.iter().map(|path| Output::new("run.output_dir", path)).collect();
    fs::require_outputs(&outputs, &[], false)
        .map_err(|_| used(output, &files.join("` or `"), "that no run has written").into())
}

/// Refuses a folder for several seeds if it contains a single run, whose results would be replaced.
pub fn refuse_single(output: &Path) -> Result<()> {
    match single_run(output)? {
        Some(name) => Err(used(output, &name, "of a run with one seed").into()),
        None => Ok(()),
    }
}

/// Refuses a folder for a run with one seed if it contains the runs of several. A folder that no command has
/// locked is free: it may be above the folders of runs.
pub fn refuse_several(output: &Path) -> Result<()> {
    if !fs::has_lock(output) || single_run(output)?.is_some() {
        return Ok(());
    }
    let Some(name) = seed_folder(output)? else { return Ok(()) };
    let message = format!("holds `{name}` of a run with several seeds, and one seed has a folder of its own");
    Err(Problem::usage(message)
        .at(output.display())
        .hint(
            "choose another `run.output_dir` (`--output-dir`), or name all seeds of this folder and new ones \
             with `--seeds`",
        )
        .into())
}

/// Refuses a folder for the cells of a command if it contains the runs of several seeds.
pub fn refuse_seeds(output: &Path) -> Result<()> {
    match seed_folder(output)? {
        Some(name) => Err(used(output, &name, "of a run with several seeds").into()),
        None => Ok(()),
    }
}

fn used(output: &Path, name: &str, what: &str) -> Problem {
    Problem::usage(format!("holds `{name}` {what}"))
        .at(output.display())
        .hint("choose another `run.output_dir`, or move this folder away; to go on with its run, restore a checkpoint")
}

/// The name of a file or folder in `output` that a run with one seed has left, if there is one.
fn single_run(output: &Path) -> Result<Option<String>> {
    if let Some(name) = first_existing(output, &[FINAL, METRICS]) {
        return Ok(Some(name.to_string()));
    }
    Ok(CheckpointStore::new(output).steps()?.last().map(|step| format!("checkpoint-{step}")))
}

/// The name of a folder `seed-N` in `output` with the run of a seed, if there is one.
fn seed_folder(output: &Path) -> Result<Option<String>> {
    let mut runs = fs::list(output)?.into_iter().filter(|path| fs::exists(&path.join(CONFIG_YAML)));
    Ok(runs.find_map(|path| {
        let name = path.file_name()?.to_str()?;
        name.strip_prefix("seed-")?.parse::<u64>().ok()?;
        Some(name.to_string())
    }))
}

/// The first of `names` that exists in the folder `output`.
fn first_existing<'a>(output: &Path, names: &[&'a str]) -> Option<&'a str> {
    names.iter().copied().find(|name| fs::exists(&output.join(name)))
}

/// The name of a `diverged-<step>` folder in `output`, if there is one.
fn diverged(output: &Path) -> Result<Option<String>> {
    let names =
        fs::list(output)?.into_iter().filter_map(|path| path.file_name()?.to_str().map(str::to_string));
    Ok(names.into_iter().find(|name| name.starts_with("diverged-")))
}

/// Returns the keys that differ from the configuration in the folder; an error if the run may not resume with
/// them, or if no run wrote that configuration.
fn require_same<C: Serialize + DeserializeOwned>(output: &Path, config: &C) -> Result<Vec<Change>> {
    let path = output.join(CONFIG_YAML);
    let written = fs::read_text_capped(&path, CAP_BYTES).ok();
    if written.as_ref().is_some_and(|text| *text == to_yaml(config)) {
        return Ok(Vec::new());
    }
    // A run writes its configuration first, and the description of its machine next.
    if written.is_none() || !fs::exists(&output.join(MACHINE)) {
        let (name, what) = match written {
            Some(_) => (CONFIG_YAML, "that no run has written"),
            None => (METRICS, "without the configuration of its run"),
        };
        return Err(used(output, name, what).into());
    }
    let kind = "of a run of another kind";
    let loaded = config::load_saved(&path).map_err(|_| used(output, CONFIG_YAML, kind))?;
    let json = match loaded {
        AnyLoaded::Pretrain(loaded) => serde_json::to_value(&loaded.config)?,
        AnyLoaded::Finetune(loaded) | AnyLoaded::Sweep(loaded) => serde_json::to_value(&loaded.config)?,
        AnyLoaded::Tasks(_) => return Err(used(output, CONFIG_YAML, kind).into()),
    };
    let saved: C =
        serde_json::from_value(for_seed_folder(json, output)).map_err(|_| used(output, CONFIG_YAML, kind))?;
    Ok(compare_for_resume(&saved, config)?)
}

/// The largest step in the records of a run; 0 without records.
fn last_step(path: &Path) -> Result<u64> {
    let mut last = 0;
    if fs::exists(path) {
        MetricsLog::each_record(path, |step, _| last = last.max(step))?;
    }
    Ok(last)
}
