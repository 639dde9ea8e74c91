//! `mlmtrain example NAME`: configurations and texts that the program carries, for a machine that has
//! nothing else.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use clap::ValueEnum;

use crate::commands::terminal;
use crate::error::Problem;
use crate::fs;

/// Arguments of `example`.
#[derive(Debug, Args)]
pub struct ExampleArgs {
    /// Which example
    #[arg(value_enum)]
    pub name: ExampleName,
    /// Where its files go; created when it is missing
    #[arg(value_name = "FOLDER", default_value = ".")]
    pub folder: PathBuf,
}

/// What can be tried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExampleName {
    /// A small RoBERTa on six English novels (1 MB), in minutes
    Quickstart,
    /// A classifier of 96 sentences into three topics, from the model of the quickstart
    Classify,
}

/// A file under its name below the folder, and its bytes.
struct Embedded {
    name: &'static str,
    bytes: &'static [u8],
}

/// A file of the source tree; the second name is the one that it is written under, where that is another.
macro_rules! embedded {
    ($path:literal) => {
        embedded!($path, $path)
    };
    ($path:literal, $name:literal) => {
        Embedded { name: $name, bytes: include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $path)) }
    };
}

/// Texts lie under the names that the configurations give them, from the folder of the configuration.
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
    // All are looked at before the first one is written.
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

/// Whether `path` holds these bytes already; one that holds others is a problem.
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
