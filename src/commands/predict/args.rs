//! The arguments of `predict`.

use std::path::PathBuf;

use clap::Args;

use crate::commands::scoring_args::{ColumnArgs, ComputeArgs, InputFormat, column};

/// Arguments of `predict`.
#[derive(Debug, Args)]
pub struct PredictArgs {
    /// Model folder in the Hugging Face layout
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// Texts: .csv, .tsv, .jsonl or .parquet with columns, anything else a text a line; for a token
    /// classifier also words: .conll or .tsv with one a line, .jsonl or .parquet with `tokens`; all but
    /// Parquet also compressed (.gz, .zst, .bz2, .xz); `-` is standard input
    #[arg(long, value_name = "FILE|-")]
    pub input: PathBuf,
    /// How to read the input; else its name tells, and standard input is a text a line
    #[arg(long, value_enum)]
    pub format: Option<InputFormat>,
    /// Columns of the input to read.
    #[command(flatten)]
    pub columns: ColumnArgs,
    /// Column of the words in a CoNLL file: 1 is the first, -1 the last
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = column)]
    pub token_column: i64,
    /// Size of the batches.
    #[command(flatten)]
    pub compute: ComputeArgs,
}
