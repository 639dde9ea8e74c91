//! The arguments that `evaluate`, `predict` and `embed` share.

use clap::{Args, ValueEnum};

use crate::config::{DeviceChoice, TagScheme};
use crate::fs::TextEncoding;
use crate::records::RowFormat;
use crate::tasks::labelled::{Columns, SentenceColumns, Tagging};

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
