//! What is proved something of: a configuration, the command that trains it, and its prepared data.
//!
//! It starts nothing: it says how a sitting of a run in another folder is started.

use std::ffi::OsString;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;

use crate::commands::verify_resume::args::VerifyResumeArgs;
use crate::config;
use crate::config::AnyLoaded;
use crate::error::Problem;
use crate::fs;

/// A configuration that is right.
pub(super) struct Subject {
    /// The subcommand that trains it.
    command: &'static str,
    /// `--config`, and what the user sets.
    arguments: Vec<OsString>,
    /// Where it would leave its checkpoints.
    pub(super) output_dir: PathBuf,
    /// Where its tokenizer and shards lie, or would lie; none for fine-tuning.
    prepared_dir: Option<PathBuf>,
    /// The first of several seeds.
    seed: Option<u64>,
}

/// How a sitting differs from the run that the user would start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cadence {
    /// Steps between two checkpoints.
    pub(super) save_steps: u64,
    /// Checkpoints kept.
    pub(super) save_total_limit: u64,
}

/// What a prepared folder consists of, for a run that only trains.
const PREPARED: [&str; 3] = ["settings.json", "shards", "tokenizer"];

/// Where the runs find their data, below the folder of all of this.
pub(super) const DATA: &str = "data";

impl Subject {
    /// Reads and checks the configuration.
    pub(super) fn load(args: &VerifyResumeArgs) -> Result<Self> {
        let mut arguments = vec![OsString::from("--config"), args.config.clone().into()];
        arguments.extend(args.profile.iter().flat_map(|name| ["--profile".into(), name.into()]));
        arguments.extend(args.set.iter().flat_map(|set| ["--set".into(), set.into()]));
        if let Some(threads) = args.threads {
            arguments.extend(["--threads".into(), threads.to_string().into()]);
        }
        Ok(match config::load_any(&args.config, &config::overrides(&args.profile, &args.set)?)? {
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

    /// Lets the runs in `folder` find the prepared data where it lies, without touching it: they lock and
    /// tidy a folder of links. Returns what a user should know.
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

    /// The command line of a sitting in `run`, a folder below that of all of this.
    pub(super) fn sitting(&self, run: &Path, cadence: Cadence) -> Result<Vec<OsString>> {
        let Cadence { save_steps, save_total_limit } = cadence;
        let mut sets = vec![
            format!("run.output_dir={}", text_of(run)?),
            format!("training.save_steps={save_steps}"),
            format!("training.save_total_limit={save_total_limit}"),
            "training.save_total_bytes=null".to_string(),
            // Each step is seen, so that it is known when to stop.
            "training.logging_steps=1".to_string(),
            "run.tensorboard=false".to_string(),
            // What is proved something of is not the run whose bucket this may be.
            "run.upload_to=null".to_string(),
            // Time is no part of what is proved, and would end both runs at steps of their own.
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

    /// What a sitting in `run` said, with the place of the data that the user knows.
    pub(super) fn in_known_terms(&self, said: &str, run: &Path) -> String {
        let Some(prepared) = &self.prepared_dir else { return said.to_string() };
        let linked = run.with_file_name(DATA).display().to_string();
        said.replace(&linked, &prepared.display().to_string())
    }
}

/// Settings are text.
fn text_of(path: &Path) -> Result<&str> {
    let problem =
        || Problem::usage("is not UTF-8").at(path.display()).hint("choose another `run.output_dir`");
    Ok(path.to_str().ok_or_else(problem)?)
}
