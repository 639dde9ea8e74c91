//! `mlmtrain embed`: computes a vector for each text, and writes them as a NumPy or a Parquet file.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::commands::outputs::OverwriteArgs;
use crate::commands::scoring_args::{ColumnArgs, ComputeArgs, InputFormat};
use crate::commands::{device, model_folder, staging, terminal};
use crate::error::Problem;
use crate::families::Pooling;
use crate::fs::Output;
use crate::machine;
use crate::ops::memory;
use crate::records::RowFormat;
use crate::tasks::embed::{Embedder, VectorFormat};
use crate::tasks::finite::require_finite;
use crate::tasks::labelled::{Columns, InputTexts, TextPair};
use crate::telemetry::{Progress, Unit};

/// Number of batches whose texts are read together and sorted by length.
const BATCHES_AT_ONCE: usize = 64;

/// Arguments of `embed`.
#[derive(Debug, Args)]
pub struct EmbedArgs {
    /// Model folder in the Hugging Face layout, with whatever head
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// Texts: .csv, .tsv or .jsonl with columns, anything else a text a line; also compressed (.gz, .zst,
    /// .bz2, .xz); `-` is standard input
    #[arg(long, visible_alias = "input", value_name = "FILE|-")]
    pub file: PathBuf,
    /// How to read the texts; else the name of the file tells, and standard input is a text a line
    #[arg(long, value_enum)]
    pub format: Option<InputFormat>,
    /// Columns of the file to read.
    #[command(flatten)]
    pub columns: ColumnArgs,
    /// File for the vectors, f32, a row for each text in order: .npy, or .parquet with the texts as well
    #[arg(long, value_name = "FILE.npy|FILE.parquet")]
    pub output: PathBuf,
    /// Pooling of hidden states; else as the folder's modules.json says (sentence-transformers), else the
    /// mean
    #[arg(long, value_enum)]
    pub pooling: Option<PoolingChoice>,
    /// Make every vector one of length 1
    #[arg(long)]
    pub normalize: bool,
    /// Permission to replace a file that exists.
    #[command(flatten)]
    pub overwrite: OverwriteArgs,
    /// Size of the batches.
    #[command(flatten)]
    pub compute: ComputeArgs,
}

/// The pooling of hidden states to a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PoolingChoice {
    /// The mean of the hidden states of all tokens, special ones included
    Mean,
    /// The hidden state of the first token
    Cls,
}

/// Runs the subcommand.
pub fn run(args: &EmbedArgs) -> Result<()> {
    machine::use_threads(args.compute.threads)?;
    let _keeping = memory::keep_freed_blocks();
    let format = VectorFormat::of(&args.output)?;
    let device = device::pick(args.compute.device)?;
    let pooling = args.pooling.map(|pooling| match pooling {
        PoolingChoice::Mean => Pooling::Mean,
        PoolingChoice::Cls => Pooling::Cls,
    });
    let input = staging::input(&args.file)?;
    let folder = model_folder::resolve(&args.model)?;
    args.overwrite.require(&[Output::new("--output", &args.output)], &[&input, &folder])?;
    let format_of_texts = args.format.map(Into::into).or_else(|| RowFormat::of(&input));
    let is_plain = format_of_texts.is_none_or(|format| format == RowFormat::Text);
    let trained = model_folder::trained_columns(&folder, &args.columns, is_plain)?;
    let columns = Columns { trained: trained.as_ref(), ..args.columns.named() };
    let mut texts = InputTexts::open(&input, format_of_texts, &columns)?;
    let embedder = Embedder::load(&folder, pooling, args.normalize, &device)?;
    embedder.notes().iter().for_each(|note| terminal::note(&terminal::printable(&format!("note: {note}"))));
    let mut file = format.create(&args.output, embedder.width()?)?;
    let batch_size = args.compute.batch_size as usize;
    let bar = Progress::detect(terminal::is_quiet()).stage("texts", Unit::Items, None);
    let mut count = 0;
    let mut cut_texts = 0;
    let mut lost_tokens = 0;
    loop {
        let some: Vec<TextPair> = texts
            .by_ref()
            .take(BATCHES_AT_ONCE * batch_size)
            .map(|text| Ok(text?.texts))
            .collect::<Result<_>>()?;
        if some.is_empty() {
            break;
        }
        let (vectors, truncation) = embedder.vectors(&some, batch_size)?;
        require_finite(&vectors, |row| format!("{}: text {}", args.file.display(), count + row + 1))?;
        file.write(&some, &vectors)?;
        cut_texts += truncation.examples;
        lost_tokens += truncation.tokens;
        count += some.len();
        bar.advance(some.len() as u64);
    }
    if count == 0 {
        return Err(Problem::new("holds no text").at(args.file.display()).into());
    }
    file.finish()?;
    bar.finish("embedded");
    if cut_texts > 0 {
        let length = embedder.max_seq_length();
        terminal::note(&format!(
            "note: {cut_texts} of {count} texts were cut at {length} tokens, {lost_tokens} tokens lost"
        ));
    }
    let output = args.output.display();
    let width = embedder.width()?;
    terminal::stdout_line(&terminal::printable(&format!("{count} vectors of {width} numbers: {output}")))
}
