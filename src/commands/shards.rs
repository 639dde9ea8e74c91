//! `mlmtrain shards`: shows tokenised text and checks it for damage.

pub mod args;
mod inspect;
mod rows;
mod statistics;
mod verify;

use std::path::{Path, PathBuf};

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

/// The folder of the shards, and the folder of their tokenizer if it is next to them.
struct Folders {
    shards: PathBuf,
    tokenizer: Option<PathBuf>,
}

impl Folders {
    /// Finds the shards and the tokenizer. `folder` is a prepared folder, or the folder of the shards in it.
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
        // `..` also works if the shards are in the current folder, whose path has no parent.
        let candidates = [folder.join("tokenizer"), shards.join("..").join("tokenizer")];
        let tokenizer = candidates.into_iter().find(|tokenizer| fs::is_folder(tokenizer));
        Ok(Self { shards, tokenizer })
    }
}
