//! The arguments of `shards`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Subcommands of `shards`.
#[derive(Debug, Subcommand)]
pub enum ShardsCommand {
    /// Print statistics, and rows with their masks as the model sees them
    ///
    /// In colour, a masked token is a green mask before the dimmed original, a random replacement is red, a
    /// token that is to be predicted but was kept is yellow. Without colour all three are `[original→what the
    /// model sees]`.
    #[command(after_help = "Examples:
  mlmtrain shards inspect runs/quickstart/data
  mlmtrain shards inspect runs/quickstart/data --rows 10 --config configs/quickstart.yaml
  mlmtrain shards inspect runs/quickstart/data --split validation --rows 1
  mlmtrain shards inspect runs/quickstart/data --document 17")]
    Inspect(InspectArgs),
    /// Check every file against the manifest: length, hash, header, offsets, token ids, tokenizer
    ///
    /// One line a file on standard output; exit code 1 when one is bad.
    #[command(after_help = "Examples:
  mlmtrain shards verify runs/quickstart/data
  mlmtrain shards verify runs/quickstart/data/shards")]
    Verify(VerifyArgs),
}

/// Arguments of `shards inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A prepared folder (with `shards` and `tokenizer`), or the folder of the shards
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Rows to print
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub rows: usize,
    /// Which side of the split
    #[arg(long, value_enum, default_value_t = SplitName::Train)]
    pub split: SplitName,
    /// Print this document whole instead of rows; the first is 0
    #[arg(long, value_name = "I", conflicts_with = "rows")]
    pub document: Option<u64>,
    /// Configuration of `pretrain` that gives the order and length of rows, packing, masking and seed
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Seed of order and masks; by default that of the configuration, or 42
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// Arguments of `shards verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// A prepared folder (with `shards` and `tokenizer`), or the folder of the shards
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// A side of the split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SplitName {
    /// The text that a model is trained on
    Train,
    /// The text that it is evaluated on
    Validation,
}
