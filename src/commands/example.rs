//! `mlmtrain example NAME`: writes configurations and texts that are embedded in the program, for a first try
//! without downloads.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::commands::terminal;
use crate::error::Problem;
use crate::fs;

/// Arguments of `example`.
#[derive(Debug, Args)]
pub struct ExampleArgs {
    /// Which example
    #[arg(value_enum)]
    pub name: ExampleName,
    /// Folder for its files; created if missing
    #[arg(value_name = "FOLDER", default_value = ".")]
    pub folder: PathBuf,
}

/// The embedded examples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExampleName {
    /// A small RoBERTa on six English novels (1 MB), in minutes
    Quickstart,
    /// A classifier of 96 sentences into three topics, from the model of the quickstart
    Classify,
}

/// An embedded file: its path below the output folder, and its bytes.
struct Embedded {
    name: &'static str,
    bytes: &'static [u8],
}

/// Embeds a file of the source tree. The second argument is the path below the output folder, if it is
/// another.
macro_rules! embedded {
    ($path:literal) => {
        embedded!($path, $path)
    };
    ($path:literal, $name:literal) => {
        Embedded { name: $name, bytes: include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $path)) }
    };
}

/// Files of the example `quickstart`. Texts have the paths that the configuration names, relative to its
/// folder.
const QUICKSTART: &[Embedded] = &[
    embedded!("configs/quickstart.yaml", "quickstart.yaml"),
    embedded!("configs/quickstart/README.md"),
    embedded!("configs/quickstart/bronte-jane-eyre.txt.zst"),
    embedded!("configs/quickstart/burnett-a-little-princess.txt.zst"),
    embedded!("configs/quickstart/burnett-the-secret-garden.txt.zst"),
    embedded!("configs/quickstart/chesterton-the-innocence-of-father-brown.txt.zst"),
    embedded!("configs/quickstart/doyle-the-hound-of-the-baskervilles.txt.zst"),
    embedded!("configs/quickstart/stevenson-treasure-island.txt.zst"),
];

const CLASSIFY: &[Embedded] = &[
    embedded!("configs/finetune-sample.yaml", "finetune-sample.yaml"),
    embedded!("configs/samples/topics-train.csv"),
    embedded!("configs/samples/topics-dev.csv"),
];

/// Runs the subcommand.
pub fn run(args: &ExampleArgs) -> Result<()> {
    let (files, command) = match args.name {
        ExampleName::Quickstart => (QUICKSTART, "mlmtrain pretrain --config quickstart.yaml"),
        ExampleName::Classify => {
            (CLASSIFY, "mlmtrain finetune --task classify --config finetune-sample.yaml")
        }
    };
    // All files are checked before the first one is written.
    let mut missing = Vec::new();
    for file in files {
        let path = args.folder.join(file.name);
        if !is_there(&path, file.bytes)? {
            missing.push((path, file.bytes));
        }
    }
    for (path, bytes) in &missing {
        fs::write_bytes(path, bytes)?;
        terminal::stdout_line(&format!("wrote `{}`", path.display()))?;
    }
    if missing.is_empty() {
        terminal::stdout_line("all files are there already")?;
    }
    let first = match args.folder.as_path() {
        here if here == Path::new(".") => String::new(),
        folder => format!("cd '{}' && ", folder.display()),
    };
    terminal::stdout_line(&format!("next: {first}{command}"))
}

/// True if `path` has these bytes already; an error if it has others.
fn is_there(path: &Path, bytes: &[u8]) -> Result<bool> {
    if !fs::exists(path) {
        return Ok(false);
    }
    let length = bytes.len() as u64;
    if !fs::is_folder(path) && fs::len_bytes(path)? == length && fs::read_capped(path, length)? == bytes {
        return Ok(true);
    }
    let problem = Problem::usage("exists already, differs from the example's, and is not written over");
    Err(problem.at(path.display()).hint("name another folder, or move this one away").into())
}
