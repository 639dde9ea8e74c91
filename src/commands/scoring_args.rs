//! The arguments of `evaluate` and `predict`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::commands::outputs::OverwriteArgs;
use crate::config::{DeviceChoice, OnBadRecord, TagScheme};
use crate::fs::TextEncoding;
use crate::records::RowFormat;
use crate::tasks::labelled::{Columns, SentenceColumns, Tagging};

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

/// The format of the input of `predict`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InputFormat {
    /// One text a line, without a header
    Text,
    /// Comma-separated columns with a header line
    Csv,
    /// Tab-separated columns with a header line
    Tsv,
    /// One JSON object a line
    Jsonl,
    /// A word a line, in columns; an empty line ends a sentence
    Conll,
}

impl From<InputFormat> for RowFormat {
    fn from(format: InputFormat) -> Self {
        match format {
            InputFormat::Text => Self::Text,
            InputFormat::Csv => Self::Csv,
            InputFormat::Tsv => Self::Tsv,
            InputFormat::Jsonl => Self::Jsonl,
            InputFormat::Conll => Self::Conll,
        }
    }
}

/// Arguments for tagged words.
#[derive(Debug, Args)]
pub struct TaggingArgs {
    /// Column of the words in a CoNLL file: 1 is the first, -1 the last
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = column)]
    pub token_column: i64,
    /// Column of the tags in a CoNLL file
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true, value_parser = column)]
    pub tag_column: i64,
    /// How entities are tagged
    #[arg(long, value_enum, default_value_t = TagScheme::Auto)]
    pub tag_scheme: TagScheme,
    /// Refuse tags that the scheme does not allow at their place
    #[arg(long)]
    pub strict: bool,
}

impl TaggingArgs {
    /// Returns the arguments for the reader of tagged words.
    pub fn tagging(&self, encoding: Option<TextEncoding>) -> Tagging<'_> {
        let columns = SentenceColumns {
            token: self.token_column,
            tag: self.tag_column,
            encoding,
            ..SentenceColumns::default()
        };
        Tagging { columns, scheme: self.tag_scheme, strict: self.strict, ..Tagging::default() }
    }
}

/// Parses the number of a column: 1 is the first, -1 the last.
pub(super) fn column(text: &str) -> Result<i64, String> {
    let column: i64 = text.parse().map_err(|e| format!("{e}"))?;
    if column == 0 { Err("columns count from 1, and from the end with -1".to_string()) } else { Ok(column) }
}

/// Arguments for the columns of texts.
#[derive(Debug, Args)]
pub struct ColumnArgs {
    /// Column or JSON field of the text; else `text`, `sentence` or `content`
    #[arg(long, value_name = "NAME")]
    pub text_column: Option<String>,
    /// Column or JSON field of the second text of a pair; where no column is named, those that the model was
    /// trained on are read
    #[arg(long, value_name = "NAME")]
    pub text_pair_column: Option<String>,
    /// Encoding of the text, e.g. `windows-1252`; else UTF-8, or what a byte-order mark says
    #[arg(long, value_name = "NAME")]
    pub encoding: Option<TextEncoding>,
}

impl ColumnArgs {
    /// Returns the columns that the user named.
    pub fn named(&self) -> Columns<'_> {
        Columns {
            text: self.text_column.as_deref(),
            text_pair: self.text_pair_column.as_deref(),
            encoding: self.encoding,
            ..Columns::default()
        }
    }
}

/// Arguments for the device, the batch size and the threads.
#[derive(Debug, Args)]
pub struct ComputeArgs {
    /// Where to compute: cpu, cuda, cuda:1, ...; auto takes the first GPU where there is one
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: DeviceChoice,
    /// Texts in one batch
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub batch_size: u32,
    /// Threads; 0 means one for each core that this process may use
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
}
