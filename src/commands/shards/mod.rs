//! `mlmtrain shards`: looks into tokenised text and checks it.

pub mod args;
mod inspect;
mod rows;
mod statistics;
mod verify;

use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;

use crate::commands::shards::args::ShardsCommand;
use crate::error::Problem;
use crate::fs;
use crate::shards::MANIFEST_JSON;

/// Runs the subcommand.
pub fn run(command: &ShardsCommand) -> Result<()> {
    match command {
        ShardsCommand::Inspect(args) => inspect::run(args),
        ShardsCommand::Verify(args) => verify::run(args),
    }
}

/// Where the shards lie, and their tokenizer if it is beside them.
struct Folders {
    shards: PathBuf,
    tokenizer: Option<PathBuf>,
}

impl Folders {
    /// `folder` is a prepared folder or that of the shards.
    fn find(folder: &Path) -> Result<Self> {
        let inside = folder.join("shards");
        let shards =
            [inside, folder.to_path_buf()].into_iter().find(|shards| fs::exists(&shards.join(MANIFEST_JSON)));
        let shards = shards.ok_or_else(|| {
            Problem::usage(format!(
                "holds no shards: there is no `{MANIFEST_JSON}` in it, nor in `shards` below it"
            ))
            .at(folder.display())
            .hint("name the prepared folder, by default `<run.output_dir>/data`; `mlmtrain prepare` makes it")
        })?;
        // `..` also works where the shards are the current folder.
        let beside = [folder.join("tokenizer"), shards.join("..").join("tokenizer")];
        let tokenizer = beside.into_iter().find(|tokenizer| fs::is_folder(tokenizer));
        Ok(Self { shards, tokenizer })
    }
}
