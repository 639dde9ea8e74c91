//! `mlmtrain config check|show|schema`: looks at a configuration without reading anything that it names.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use crate::commands::cli::ConfigCommand;
use crate::commands::cli::FileArgs;
use crate::commands::cli::SchemaOf;
use crate::commands::cli::ShowArgs;
use crate::commands::terminal::stdout_line;
use crate::config;
use crate::config::Kind;
use crate::config::Loaded;
use crate::error::Problems;

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
    let command = match config::kind_of(path)? {
        Kind::Pretrain => config::load_pretrain(path, &args.set).map(|_| "pretrain")?,
        Kind::Finetune => config::load_finetune(path, &args.set).map(|_| "finetune")?,
    };
    Ok(format!("{}: right, a configuration of `{command}`", path.display()))
}

fn show(ShowArgs { file: FileArgs { file, set }, json }: &ShowArgs) -> Result<String, Problems> {
    Ok(match config::kind_of(file)? {
        Kind::Pretrain => shown(&config::load_pretrain(file, set)?, *json),
        Kind::Finetune => shown(&config::load_finetune(file, set)?, *json),
    })
}

fn shown<T: Serialize>(loaded: &Loaded<T>, json: bool) -> String {
    if json { config::to_json(&loaded.config) } else { loaded.show() }
}
