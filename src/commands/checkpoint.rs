//! `mlmtrain checkpoint`: lists the checkpoints of a run, verifies model folders, averages checkpoints, and
//! deletes old ones.

pub mod args;
mod average;
mod inspect;
mod list;
mod prune;
mod verify;

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::checkpoint::{CheckpointStore, Unverified};
use crate::commands::checkpoint::args::CheckpointCommand;
use crate::error::Problem;
use crate::fs;
use crate::interop::holds_pair;
use crate::train::run_folder::FINAL;

/// Runs the subcommand.
pub fn run(command: &CheckpointCommand) -> Result<()> {
    match command {
        CheckpointCommand::List(args) => list::run(args),
        CheckpointCommand::Verify(args) => verify::run(args),
        CheckpointCommand::Average(args) => average::run(args),
        CheckpointCommand::Prune(args) => prune::run(args),
    }
}

/// Returns the checkpoint store of a run folder, or an error if `folder` has no checkpoints.
fn store_of_run(folder: &Path) -> Result<CheckpointStore> {
    if is_run(folder)? {
        return Ok(CheckpointStore::new(folder));
    }
    let problem = Problem::usage("holds no checkpoints").at(folder.display());
    Err(match seeds(folder)?.first() {
        Some(first) => {
            problem.hint(format!("there is a run for each seed: name one of them, as `{}`", first.display()))
        }
        None => problem.hint("name the folder of a run, its `run.output_dir`"),
    }
    .into())
}

/// True if the folder has checkpoints or a final model.
fn is_run(folder: &Path) -> Result<bool> {
    if !fs::is_folder(folder) {
        return Ok(false);
    }
    Ok(fs::is_folder(&folder.join(FINAL)) || !CheckpointStore::new(folder).steps()?.is_empty())
}

/// Returns the run folders `seed-N` below a folder of several seeds.
fn seeds(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut seeds = Vec::new();
    let entries = if fs::is_folder(folder) { fs::list(folder)? } else { Vec::new() };
    for path in entries {
        let is_seed = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seed-"));
        if is_seed && is_run(&path)? {
            seeds.push(path);
        }
    }
    Ok(seeds)
}

/// Returns the checkpoints and the final model of a run.
fn models_of_run(folder: &Path) -> Result<Vec<PathBuf>> {
    let store = CheckpointStore::new(folder);
    let mut models: Vec<PathBuf> = store.steps()?.into_iter().map(|step| store.path_of(step)).collect();
    models.extend(Some(folder.join(FINAL)).filter(|path| fs::is_folder(path)));
    Ok(models)
}

/// Returns the model folders that the user means by `folder`: those of a run or of several seeds, and the
/// folder itself if it is a model.
fn models_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut models = if is_run(folder)? { models_of_run(folder)? } else { Vec::new() };
    if models.is_empty() {
        for seed in seeds(folder)? {
            models.extend(models_of_run(&seed)?);
        }
    }
    // Other programs write the final model of a run into the same folder as its checkpoints.
    if is_model(folder) || models.is_empty() && is_named_as_model(folder) {
        models.push(folder.to_path_buf());
    }
    if models.is_empty() {
        let hint = "name a run folder, a checkpoint, a final model, or any model folder with a `config.json`";
        return Err(Problem::usage("holds no checkpoint and no model")
            .at(folder.display())
            .hint(hint)
            .into());
    }
    Ok(models)
}

fn is_model(folder: &Path) -> bool {
    fs::exists(&folder.join("config.json"))
        || holds_pair(folder)
        || Unverified::find(folder).is_ok_and(|manifest| manifest.is_some())
}

/// True if a folder has the name of a checkpoint or of a final model, even if its files are missing.
fn is_named_as_model(folder: &Path) -> bool {
    fs::is_folder(folder)
        && (step_of_name(folder).is_some() || folder.file_name().is_some_and(|n| n == FINAL))
}

/// The step in the name of a checkpoint folder.
fn step_of_name(folder: &Path) -> Option<u64> {
    folder.file_name()?.to_str()?.strip_prefix("checkpoint-")?.parse().ok()
}
