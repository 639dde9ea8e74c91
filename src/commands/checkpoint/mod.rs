//! `mlmtrain checkpoint`: looks at the checkpoints of a run and at model folders, and deletes old ones.

pub mod args;
mod inspect;
mod list;
mod prune;
mod verify;

use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;

use crate::checkpoint::CheckpointStore;
use crate::checkpoint::Unverified;
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
        CheckpointCommand::Prune(args) => prune::run(args),
    }
}

/// The store of a run folder; an error where it is none.
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

/// Whether a run left checkpoints or a final model here.
fn is_run(folder: &Path) -> Result<bool> {
    let has_steps = || anyhow::Ok(!CheckpointStore::new(folder).steps()?.is_empty());
    Ok(fs::is_folder(folder) && (fs::is_folder(&folder.join(FINAL)) || has_steps()?))
}

/// The run folders of several seeds below one folder.
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

/// The model folders that `folder` stands for: itself, or those of a run, or of a run for each seed.
fn models_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let of_run = |folder: &Path| {
        let store = CheckpointStore::new(folder);
        let mut models: Vec<PathBuf> = store.steps()?.into_iter().map(|step| store.path_of(step)).collect();
        models.extend(Some(folder.join(FINAL)).filter(|path| fs::is_folder(path)));
        anyhow::Ok(models)
    };
    let mut models = if is_run(folder)? { of_run(folder)? } else { Vec::new() };
    if models.is_empty() {
        for seed in seeds(folder)? {
            models.extend(of_run(&seed)?);
        }
    }
    // Other programs leave the model of a run beside its checkpoints.
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
    let has_manifest = || Unverified::find(folder).is_ok_and(|manifest| manifest.is_some());
    fs::exists(&folder.join("config.json")) || holds_pair(folder) || has_manifest()
}

/// Whether a folder has the name of a checkpoint or of a final model, whatever is left of its files.
fn is_named_as_model(folder: &Path) -> bool {
    fs::is_folder(folder)
        && (step_of_name(folder).is_some() || folder.file_name().is_some_and(|n| n == FINAL))
}

/// The step that the name of a checkpoint folder says.
fn step_of_name(folder: &Path) -> Option<u64> {
    folder.file_name()?.to_str()?.strip_prefix("checkpoint-")?.parse().ok()
}
