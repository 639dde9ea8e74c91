//! `mlmtrain config`: checks, shows, converts and describes configurations, without reading the files that
//! they name.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use crate::commands::config_args::ChangeArgs;
use crate::commands::outputs::OverwriteArgs;
use crate::commands::terminal;
use crate::commands::terminal::stdout_line;
use crate::config::{AnyLoaded, FinetuneTask, Kind, Loaded, Purpose};
use crate::error::Problems;
use crate::fs::Output;
use crate::{config, fs};

/// Subcommands of `config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Report every problem of a configuration with its line and column
    #[command(after_help = "Examples:
  mlmtrain config check configs/quickstart.yaml
  mlmtrain config check configs/quickstart.yaml --set data.max_seq_length=32")]
    Check(FileArgs),
    /// Print a configuration with all defaults, and where each value comes from
    #[command(after_help = "Examples:
  mlmtrain config show configs/quickstart.yaml --set run.seed=7
  mlmtrain config show configs/quickstart.yaml --json")]
    Show(ShowArgs),
    /// Make a configuration of the arguments of run_mlm.py, run_glue.py or run_ner.py
    ///
    /// Reads the JSON or YAML that these scripts take, or a saved TrainingArguments, and writes a
    /// configuration that is right, each value with where it is from. What has no place here, what was
    /// assumed and what is not known goes to standard error, each by name.
    #[command(after_help = "Examples:
  mlmtrain config convert run_mlm.json -o pretrain.yaml
  mlmtrain config convert training_args.json --for token-classify")]
    Convert(ConvertArgs),
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
    /// Print a page of all keys in Markdown: type, default and meaning
    #[command(after_help = "Examples:
  mlmtrain config keys | less
  mlmtrain config keys | grep warmup")]
    Keys,
}

/// A configuration file, and changes to it.
#[derive(Debug, Args)]
pub struct FileArgs {
    /// YAML or JSON configuration of `pretrain`, `finetune` or `compare`
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Changes to the configuration.
    #[command(flatten)]
    pub changes: ChangeArgs,
}

/// Arguments of `config show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The configuration to show.
    #[command(flatten)]
    pub file: FileArgs,
    /// Print one JSON object with the values alone, which is a configuration, too
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `config convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// JSON or YAML of the arguments
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// File to write; without it the configuration goes to standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Permission to replace a file that exists.
    #[command(flatten)]
    pub overwrite: OverwriteArgs,
    /// Task of the arguments; recognized by their names when not given
    #[arg(long = "for", value_enum, value_name = "WHAT")]
    pub purpose: Option<ConvertFor>,
}

/// The task of the arguments of another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ConvertFor {
    /// run_mlm.py
    Pretrain,
    /// run_glue.py, run_classification.py
    Classify,
    /// run_glue.py with numbers to predict
    Regression,
    /// run_ner.py
    TokenClassify,
}

impl From<ConvertFor> for Purpose {
    fn from(purpose: ConvertFor) -> Self {
        match purpose {
            ConvertFor::Pretrain => Self::Pretrain,
            ConvertFor::Classify => Self::Finetune(FinetuneTask::Classify),
            ConvertFor::Regression => Self::Finetune(FinetuneTask::Regression),
            ConvertFor::TokenClassify => Self::Finetune(FinetuneTask::TokenClassify),
        }
    }
}

/// The kind of configuration that a schema describes.
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
        ConfigCommand::Convert(args) => return convert(args),
        ConfigCommand::Schema { of: SchemaOf::Pretrain } => config::schema_json(Kind::Pretrain),
        ConfigCommand::Schema { of: SchemaOf::Finetune } => config::schema_json(Kind::Finetune),
        ConfigCommand::Keys => config::keys_markdown(),
    };
    stdout_line(text.trim_end())
}

fn check(args: &FileArgs) -> Result<String, Problems> {
    let path: &Path = &args.file;
    let command = match config::load_any(path, &args.changes.overrides()?)? {
        AnyLoaded::Pretrain(_) => "pretrain",
        AnyLoaded::Finetune(_) | AnyLoaded::Sweep(_) => "finetune",
        AnyLoaded::Tasks(_) => "compare",
    };
    Ok(format!("{}: OK (configuration of `{command}`)", path.display()))
}

/// Converts the arguments of another program. Notes are printed before the configuration: they may be many,
/// and users read the end of the output.
fn convert(args: &ConvertArgs) -> Result<()> {
    if let Some(path) = &args.output {
        args.overwrite.require(&[Output::new("--output", path)], &[&args.file])?;
    }
    let converted = config::convert(&args.file, args.purpose.map(Into::into))?;
    // Notes quote text from the file, which is escaped.
    converted.notes.iter().for_each(|note| terminal::note(&terminal::printable(note)));
    match &args.output {
        Some(path) => fs::write_bytes(path, converted.yaml.as_bytes()),
        None => stdout_line(converted.yaml.trim_end()),
    }
}

fn show(args: &ShowArgs) -> Result<String, Problems> {
    let ShowArgs { file, json } = args;
    Ok(match config::load_any(&file.file, &file.changes.overrides()?)? {
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
