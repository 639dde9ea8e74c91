//! `mlmtrain config check|show|schema`: looks at a configuration without reading anything that it names.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use clap::Subcommand;
use clap::ValueEnum;
use serde::Serialize;

use crate::commands::terminal::stdout_line;
use crate::config;
use crate::config::AnyLoaded;
use crate::config::Kind;
use crate::config::Loaded;
use crate::config::Override;
use crate::error::Problems;

/// Subcommands of `config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Report every problem of a configuration with its line and column
    #[command(after_help = "Examples:
  mlmtrain config check configs/quickstart.yaml
  mlmtrain config check configs/quickstart.yaml --set data.max_seq_length=128")]
    Check(FileArgs),
    /// Print a configuration with all defaults, and where each value comes from
    #[command(after_help = "Examples:
  mlmtrain config show configs/quickstart.yaml --set run.seed=7
  mlmtrain config show configs/quickstart.yaml --json")]
    Show(ShowArgs),
    /// Print the JSON Schema, for completion in editors
    #[command(after_help = "Examples:
  mlmtrain config schema > mlmtrain.schema.json
Then put this line first in a configuration (VS Code with the YAML extension, Zed, Neovim):
  # yaml-language-server: $schema=mlmtrain.schema.json")]
    Schema {
        /// Which configuration to describe
        #[arg(value_enum, default_value_t = SchemaOf::Pretrain)]
        of: SchemaOf,
    },
}

/// A configuration file to look at, and changes to it.
#[derive(Debug, Args)]
pub struct FileArgs {
    /// YAML or JSON configuration of `pretrain`, `finetune` or `compare`
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Lay a profile of the configuration over the rest, as the other commands do; may be repeated
    #[arg(long, value_name = "NAME")]
    pub profile: Vec<String>,
    /// Change one key, as the other commands do; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Arguments of `config show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// What to show.
    #[command(flatten)]
    pub file: FileArgs,
    /// Print one JSON object with the values alone, which is a configuration, too
    #[arg(long)]
    pub json: bool,
}

/// Which configuration a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// Of `pretrain` and `prepare`
    Pretrain,
    /// Of `finetune`
    Finetune,
}

/// Runs the subcommand.
pub fn run(command: &ConfigCommand) -> Result<()> {
    let text = match command {
        ConfigCommand::Check(args) => check(args)?,
        ConfigCommand::Show(args) => show(args)?,
        ConfigCommand::Schema { of: SchemaOf::Pretrain } => config::schema_json(Kind::Pretrain),
        ConfigCommand::Schema { of: SchemaOf::Finetune } => config::schema_json(Kind::Finetune),
    };
    stdout_line(text.trim_end())
}

fn check(args: &FileArgs) -> Result<String, Problems> {
    let path: &Path = &args.file;
    let command = match config::load_any(path, &args.overrides()?)? {
        AnyLoaded::Pretrain(_) => "pretrain",
        AnyLoaded::Finetune(_) | AnyLoaded::Sweep(_) => "finetune",
        AnyLoaded::Tasks(_) => "compare",
    };
    Ok(format!("{}: right, a configuration of `{command}`", path.display()))
}

impl FileArgs {
    fn overrides(&self) -> Result<Vec<Override>, Problems> {
        config::overrides(&self.profile, &self.set)
    }
}

fn show(ShowArgs { file, json }: &ShowArgs) -> Result<String, Problems> {
    Ok(match config::load_any(&file.file, &file.overrides()?)? {
        AnyLoaded::Pretrain(loaded) => shown(&loaded, *json),
        AnyLoaded::Finetune(loaded) | AnyLoaded::Sweep(loaded) => shown(&loaded, *json),
        AnyLoaded::Tasks(tasks) => {
            let tasks = serde_json::json!({"tasks": tasks});
            if *json { config::to_json(&tasks) } else { config::to_yaml(&tasks) }
        }
    })
}

fn shown<T: Serialize>(loaded: &Loaded<T>, json: bool) -> String {
    if json { config::to_json(&loaded.config) } else { loaded.show() }
}
