//! The subject of the proof: a configuration, the command that trains it, and its prepared data.
//!
//! This module starts no process. It builds the command line that trains the configuration in another folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::commands::config_args::RunChangeArgs;
use crate::commands::verify_resume::args::VerifyResumeArgs;
use crate::config::AnyLoaded;
use crate::error::Problem;
use crate::{config, fs};

/// A checked configuration.
pub(super) struct Subject {
    /// The subcommand that trains it.
    command: &'static str,
    /// The arguments `--config`, `--profile`, `--set` and `--threads` of the user.
    arguments: Vec<OsString>,
    /// The output folder of the configuration, which is not used.
    pub(super) output_dir: PathBuf,
    /// The folder for tokenizer and shards, which may not exist yet; `None` for fine-tuning.
    prepared_dir: Option<PathBuf>,
    /// The first seed, if there are several.
    seed: Option<u64>,
}

/// The frequency of checkpoints, which differs from the user's configuration.
#[derive(Debug, Clone, Copy)]
pub(super) struct SaveSettings {
    /// Number of steps between two checkpoints.
    pub(super) save_steps: u64,
    /// Number of checkpoints that are kept.
    pub(super) save_total_limit: u64,
}

/// The entries of a prepared folder that training needs.
const PREPARED: [&str; 3] = ["settings.json", "shards", "tokenizer"];

/// Name of the data folder of both runs, inside the folder of the proof.
pub(super) const DATA: &str = "data";

impl Subject {
    /// Reads and checks the configuration.
    pub(super) fn load(args: &VerifyResumeArgs) -> Result<Self> {
        let mut arguments = vec![OsString::from("--config"), args.config.clone().into()];
        let RunChangeArgs { threads, changes } = &args.changes;
        arguments.extend(changes.profile.iter().flat_map(|name| ["--profile".into(), name.into()]));
        arguments.extend(changes.set.iter().flat_map(|set| ["--set".into(), set.into()]));
        if let Some(threads) = threads {
            arguments.extend(["--threads".into(), threads.to_string().into()]);
        }
        Ok(match config::load_any(&args.config, &changes.overrides()?)? {
            AnyLoaded::Pretrain(loaded) => {
                let config = loaded.config;
                let prepared_dir = Some(config.prepared_dir());
                let output_dir = config.run.output_dir;
                Self { command: "pretrain", arguments, output_dir, prepared_dir, seed: None }
            }
            AnyLoaded::Finetune(loaded) => {
                let config = loaded.config;
                let seed = config.seeds.first().copied();
                let output_dir = config.run.output_dir;
                Self { command: "finetune", arguments, output_dir, prepared_dir: None, seed }
            }
            AnyLoaded::Sweep(_) | AnyLoaded::Tasks(_) => {
                return Err(Problem::usage("describes many runs, and the proof is of one")
                    .at(args.config.display())
                    .hint("name the configuration of one of them: a run's folder has its `config.yaml`")
                    .into());
            }
        })
    }

    /// Makes a folder of links to the prepared data in `folder`, so that the runs use the data without
    /// locking or changing its own folder. Returns a note for the user if there is no prepared data.
    pub(super) fn share_data(&self, folder: &Path) -> Result<Option<String>> {
        let Some(prepared) = &self.prepared_dir else { return Ok(None) };
        let is_whole = fs::exists(&prepared.join("shards").join("manifest.json"))
            && fs::is_folder(&prepared.join("tokenizer"));
        if !is_whole {
            return Ok(Some(format!(
                "note: there is no prepared data in `{}`: it is made for this proof alone, and deleted again; \
                 `mlmtrain prepare` would keep it",
                prepared.display()
            )));
        }
        let data = folder.join(DATA);
        fs::create_new_folder(&data)?;
        for name in PREPARED {
            fs::link(&prepared.join(name), &data.join(name))?;
        }
        Ok(None)
    }

    /// Returns the arguments to train in `run`, a folder inside the folder of the proof.
    pub(super) fn arguments_for(&self, run: &Path, saves: SaveSettings) -> Result<Vec<OsString>> {
        let SaveSettings { save_steps, save_total_limit } = saves;
        let mut sets = vec![
            format!("run.output_dir={}", text_of(run)?),
            format!("training.save_steps={save_steps}"),
            format!("training.save_total_limit={save_total_limit}"),
            "training.save_total_bytes=null".to_string(),
            // Each step writes a record, by which the watching process knows when to stop the run.
            "training.logging_steps=1".to_string(),
            "run.tensorboard=false".to_string(),
            // The bucket may belong to the real run of this configuration.
            "run.upload_to=null".to_string(),
            // Limits of time and money would end the two runs at different steps.
            "training.max_train_time=null".to_string(),
            "run.budget_usd=null".to_string(),
            "run.deadline=null".to_string(),
        ];
        if self.prepared_dir.is_some() {
            sets.push(format!("data.prepared_dir={}", text_of(&run.with_file_name(DATA))?));
        }
        sets.extend(self.seed.map(|seed| format!("seeds=[{seed}]")));
        let mut arguments = vec![OsString::from(self.command)];
        arguments.extend(self.arguments.iter().cloned());
        arguments.extend(sets.into_iter().flat_map(|set| ["--set".into(), set.into()]));
        Ok(arguments)
    }

    /// Replaces the linked data folder in the output of a launch in `run` by the original folder, which the
    /// user knows.
    pub(super) fn with_original_paths(&self, output: &str, run: &Path) -> String {
        let Some(prepared) = &self.prepared_dir else { return output.to_string() };
        let linked = run.with_file_name(DATA).display().to_string();
        output.replace(&linked, &prepared.display().to_string())
    }
}

/// Returns a path as text; an error if it is not UTF-8, which a `--set` argument needs.
fn text_of(path: &Path) -> Result<&str> {
    Ok(path.to_str().ok_or_else(|| {
        Problem::usage("is not UTF-8").at(path.display()).hint("choose another `run.output_dir`")
    })?)
}
