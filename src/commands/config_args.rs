//! Arguments that change a configuration, and those of `pretrain` and `prepare`.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use serde_json::json;

use crate::commands::training_flags::TrainingFlags;
use crate::config;
use crate::config::{AnyLoaded, Loaded, Override, PretrainConfig};
use crate::error::Problems;

/// Changes to a configuration.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    /// Lay a profile of the configuration over the rest (table `profiles`); may be repeated, later ones win
    #[arg(long, value_name = "NAME")]
    pub profile: Vec<String>,
    /// Change one key, e.g. `training.max_steps=100`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

impl ChangeArgs {
    /// Returns the changes in the order in which they apply.
    pub fn overrides(&self) -> Result<Vec<Override>, Problems> {
        config::overrides(&self.profile, &self.set)
    }
}

/// Changes to a configuration of something that is computed.
#[derive(Debug, Args)]
pub struct RunChangeArgs {
    /// Threads; 0 means one for each core that this process may use (key `run.threads`)
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
    /// The other changes.
    #[command(flatten)]
    pub changes: ChangeArgs,
}

impl RunChangeArgs {
    /// Returns the changes in the order in which they apply.
    pub fn overrides(&self) -> Result<Vec<Override>, Problems> {
        let threads = self.threads.map(|threads| Override::flag("--threads", "run.threads", threads));
        Ok(threads.into_iter().chain(self.changes.overrides()?).collect())
    }
}

/// A configuration file and changes to it.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// YAML or JSON configuration
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Changes to the configuration.
    #[command(flatten)]
    pub changes: RunChangeArgs,
}

impl ConfigArgs {
    /// Loads the configuration of the file, applies the flags and then the `--set` values, and checks the
    /// result.
    pub fn load(&self) -> Result<Loaded<PretrainConfig>, Problems> {
        self.load_with(Vec::new())
    }

    /// Loads a configuration of any kind like [`ConfigArgs::load`].
    pub fn load_any(&self) -> Result<AnyLoaded, Problems> {
        config::load_any(&self.config, &self.changes.overrides()?)
    }

    /// Loads the configuration like [`ConfigArgs::load`], with more settings, which the flags change.
    pub(super) fn load_with(&self, mut overrides: Vec<Override>) -> Result<Loaded<PretrainConfig>, Problems> {
        overrides.extend(self.changes.overrides()?);
        config::load_pretrain_with(&self.config, &overrides)
    }
}

/// Arguments of `pretrain`.
#[derive(Debug, Args)]
pub struct PretrainArgs {
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Model folder in the Hugging Face layout to train on from, with its tokenizer unless the configuration
    /// has one (key `model.path`)
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// Checkpoint whose learning rate is brought down to its end over `training.lr_decay_steps`, in a run
    /// folder of its own: one from the stable part of a run, or a model folder of weights only (key
    /// `decay_from`)
    #[arg(long, value_name = "CHECKPOINT")]
    pub decay_from: Option<PathBuf>,
    /// Where to start: `auto` (the newest valid checkpoint, if any), `never` (refuses a used output folder),
    /// or a checkpoint
    #[arg(long, value_name = "auto|never|PATH", default_value = "auto")]
    pub resume: Resume,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    // Last, because its help heading would also apply to the fields after it.
    /// Hyper-parameters that are changed often.
    #[command(flatten)]
    pub training: TrainingFlags,
}

impl PretrainArgs {
    /// Loads the configuration of the file, and applies the flags and then the `--set` values.
    pub fn load(&self) -> Result<Loaded<PretrainConfig>, Problems> {
        let model = self.model.iter().map(|path| Override::flag("--model", "model", json!({"path": path})));
        let decay = self.decay_from.iter();
        let decay =
            decay.map(|path| Override::flag("--decay-from", "decay_from", json!({"checkpoint": path})));
        self.config.load_with(model.chain(decay).chain(self.training.of_pretraining()).collect())
    }
}

/// The state that `pretrain` starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resume {
    /// The newest valid checkpoint of the output folder, or a new run if there is none.
    Auto,
    /// A new run; an output folder with checkpoints is refused.
    Never,
    /// This checkpoint folder.
    From(PathBuf),
}

impl FromStr for Resume {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "auto" => Self::Auto,
            "never" => Self::Never,
            path => Self::From(PathBuf::from(path)),
        })
    }
}

/// Arguments of `prepare`.
#[derive(Debug, Args)]
pub struct PrepareArgs {
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
}
