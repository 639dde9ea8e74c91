//! `mlmtrain embed`: a vector for each text, in a file that NumPy or whatever reads Parquet opens.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use clap::ValueEnum;

use crate::commands::device;
use crate::commands::model_folder;
use crate::commands::outputs::OverwriteArgs;
use crate::commands::scoring_args::ColumnArgs;
use crate::commands::scoring_args::ComputeArgs;
use crate::commands::scoring_args::InputFormat;
use crate::commands::staging;
use crate::commands::terminal;
use crate::error::Problem;
use crate::families::Pooling;
use crate::fs::Output;
use crate::machine;
use crate::ops::memory;
use crate::tasks::embed::Embedder;
use crate::tasks::embed::VectorFormat;
use crate::tasks::finite::require_finite;
use crate::tasks::labelled::InputTexts;
use crate::tasks::labelled::TextPair;
use crate::telemetry::Progress;
use crate::telemetry::Unit;

/// Batches of texts that are read, and sorted by their lengths, at once.
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
    /// Which fields of the file to read.
    #[command(flatten)]
    pub columns: ColumnArgs,
    /// Where the vectors go, f32, a row for each text in its order: .npy, or .parquet with the texts beside
    /// them
    #[arg(long, value_name = "FILE.npy|FILE.parquet")]
    pub output: PathBuf,
    /// What a vector is made of; else as the folder's modules.json says (sentence-transformers), else the mean
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

/// What a vector is made of.
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
    let (input, folder) = (staging::input(&args.file)?, model_folder::named(&args.model)?);
    args.overwrite.require(&[Output::new("--output", &args.output)], &[&input, &folder])?;
    let mut texts = InputTexts::open(&input, args.format.map(Into::into), &args.columns.named())?;
    let embedder = Embedder::load(&folder, pooling, args.normalize, &device)?;
    embedder.notes().iter().for_each(|note| terminal::note(&terminal::printable(&format!("note: {note}"))));
    let mut file = format.create(&args.output, embedder.width()?)?;
    let batch_size = args.compute.batch_size as usize;
    let bar = Progress::detect(terminal::is_quiet()).stage("texts", Unit::Items, None);
    let (mut count, mut cut, mut lost) = (0, 0, 0);
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
        (cut, lost) = (cut + truncation.examples, lost + truncation.tokens);
        count += some.len();
        bar.advance(some.len() as u64);
    }
    if count == 0 {
        return Err(Problem::new("holds no text").at(args.file.display()).into());
    }
    file.finish()?;
    bar.finish("embedded");
    if cut > 0 {
        let length = embedder.max_seq_length();
        terminal::note(&format!(
            "note: {cut} of {count} texts were cut at {length} tokens, {lost} tokens lost"
        ));
    }
    let (output, width) = (args.output.display(), embedder.width()?);
    terminal::stdout_line(&terminal::printable(&format!("{count} vectors of {width} numbers: {output}")))
}
