//! The arguments of `checkpoint`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Subcommands of `checkpoint`.
#[derive(Debug, Subcommand)]
pub enum CheckpointCommand {
    /// Print the checkpoints of a run: step, age, size, which one is the best, whether it is whole
    ///
    /// Every file is read and compared with its hash. A damaged checkpoint is a line of the table, and the
    /// reason follows the table.
    #[command(after_help = "Examples:
  mlmtrain checkpoint list runs/quickstart
  mlmtrain checkpoint list runs/quickstart --json")]
    List(ListArgs),
    /// Check model folders: hashes match, every value is finite, tensor shapes match config.json
    ///
    /// A run folder stands for all its checkpoints and its final model. Any model folder in the Hugging Face
    /// layout will do; where there is no manifest with hashes, the tensors alone are checked. Exit code 0
    /// when all is right, 1 when something is damaged, 2 when a folder is none of these.
    #[command(after_help = "Examples:
  mlmtrain checkpoint verify runs/quickstart
  mlmtrain checkpoint verify runs/quickstart/checkpoint-3000 runs/quickstart/final
  mlmtrain checkpoint verify models/roberta-base --json")]
    Verify(VerifyArgs),
    /// Write the mean of the weights of several checkpoints of a run, as a model folder
    ///
    /// The folder is one that `evaluate`, `predict`, `finetune` and `AutoModel.from_pretrained` read.
    /// Checkpoints of different models or tokenizers are refused, and damaged ones, too. Within the run
    /// folder `evaluate` cleans the text as the run did.
    #[command(after_help = "Examples:
  mlmtrain checkpoint average runs/quickstart --last 2 --output runs/quickstart/averaged
  mlmtrain checkpoint average runs/quickstart/checkpoint-3000 runs/quickstart/final --output mean")]
    Average(AverageArgs),
    /// Delete old checkpoints of a run, never the best one
    ///
    /// Keeps the newest N that are intact, which it verifies before it deletes anything. Damaged checkpoints
    /// are reported and kept; if none is intact, nothing is deleted.
    #[command(after_help = "Examples:
  mlmtrain checkpoint prune runs/quickstart --keep 1 --dry-run
  mlmtrain checkpoint prune runs/quickstart --keep 2")]
    Prune(PruneArgs),
}

/// Arguments of `checkpoint list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The folder of a run, `run.output_dir`
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `checkpoint verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Run folders, checkpoints, final models, or other model folders in the Hugging Face layout
    #[arg(value_name = "DIR", required = true)]
    pub folders: Vec<PathBuf>,
    /// Print one JSON object instead of lines
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `checkpoint average`.
#[derive(Debug, Args)]
pub struct AverageArgs {
    /// Run folders, for all their checkpoints; single checkpoints; final models
    #[arg(value_name = "DIR", required = true)]
    pub folders: Vec<PathBuf>,
    /// The folder to write, which must not exist
    #[arg(long, value_name = "DIR")]
    pub output: PathBuf,
    /// Average the N checkpoints with the most steps only
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub last: Option<u32>,
}

/// Arguments of `checkpoint prune`.
#[derive(Debug, Args)]
pub struct PruneArgs {
    /// The folder of a run, `run.output_dir`
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Whole checkpoints to keep, newest first; the best one is kept as well
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: u32,
    /// Say what would be deleted, and delete nothing
    #[arg(long)]
    pub dry_run: bool,
}
