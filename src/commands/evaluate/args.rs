//! The arguments of `evaluate`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::commands::outputs::OverwriteArgs;
use crate::commands::scoring_args::{ColumnArgs, ComputeArgs, TaggingArgs};
use crate::config::OnBadRecord;

/// Arguments of `evaluate`.
#[derive(Debug, Args)]
pub struct EvaluateArgs {
    /// Model folder in the Hugging Face layout
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// Labelled examples (.csv, .tsv, .jsonl, .parquet) for a classifier, tagged words (CoNLL, .jsonl,
    /// .parquet) for a token classifier, text for a masked language model, which is cleaned as its run's or
    /// else `prepare`'s default `data.cleaning` says, and not filtered, pairs of sentences (`good`, `bad`)
    /// for minimal pairs
    #[arg(long, value_name = "FILE")]
    pub data: PathBuf,
    /// Task to score a model on; else the task that it was trained for
    #[arg(long, value_enum)]
    pub task: Option<ScoringTask>,
    /// Minimal pairs: mask what follows a token in its word as well
    #[arg(long, requires = "task")]
    pub mask_rest_of_word: bool,
    /// Minimal pairs: write the log-likelihoods of each pair, a JSON line each; `-` is standard output
    #[arg(long, value_name = "FILE|-", requires = "task")]
    pub scores: Option<PathBuf>,
    /// Columns of the data to read.
    #[command(flatten)]
    pub columns: ColumnArgs,
    /// Column of the label; in JSONL of tagged words the field of the tags
    #[arg(long, value_name = "NAME")]
    pub label_column: Option<String>,
    /// Separator of the labels of a text that has any number of them, `,` when absent; not of the items of a
    /// list, as JSONL has them
    #[arg(long, value_name = "TEXT")]
    pub label_separator: Option<String>,
    /// Names of the tags or labels, if the data has numbers or lists of 0 and 1 in their place, in the order
    /// of the data, such as `O,B-PER,I-PER`. Without it numbers are refused
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub labels: Vec<String>,
    /// How tagged words are read.
    #[command(flatten)]
    pub tagging: TaggingArgs,
    /// Treatment of rows and sentences that cannot be read, such as those without a label
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = OnBadRecord::Fail)]
    pub on_bad_record: OnBadRecord,
    /// Also write the predictions for all examples to this file: JSONL, for tagged words also .conll
    #[arg(long, value_name = "FILE")]
    pub predictions: Option<PathBuf>,
    /// Also write the first batch and its logits to this safetensors file
    #[arg(long, value_name = "FILE")]
    pub dump_logits: Option<PathBuf>,
    /// Permission to replace files that exist.
    #[command(flatten)]
    pub overwrite: OverwriteArgs,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
    /// Size of the batches.
    #[command(flatten)]
    pub compute: ComputeArgs,
}

/// The tasks that a model can be scored on without being trained for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScoringTask {
    /// Which of two sentences a pretrained model finds likelier
    MinimalPairs,
}
