//! A sample of a text, and estimates from it: the size of the whole text, and its number of tokens.

use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::recipe::size::SHORT_LENGTH;
use base::error::Problem;
use base::families::plain_model;
use base::fs::Kind;
use config::{DataConfig, DocumentUnit, TokenizerConfig};
use data::corpus::{BAD_RECORD, Corpus, Item, Judge, SourceFile};
use data::tokenizer::{Tokenizer, Trainer, TrainerOptions};

/// Bytes of text in the sample, over all files.
const SAMPLE_BYTES: u64 = 8 << 20;

/// Most files that are read for the sample, spread evenly over all files.
const MOST_FILES: usize = 64;

/// Bytes at the beginning of a plain text that are searched for blank lines.
const SNIFFED_BYTES: u64 = 1 << 16;

/// A sample of the documents of a text, from files spread over the whole text.
#[derive(Debug, Clone)]
pub struct TextSample {
    documents: Vec<String>,
    /// Number of files of the whole text.
    pub files: usize,
    /// Bytes of all files on the disk.
    pub disk_bytes: u64,
    /// Estimated bytes of the whole text after decompression and parsing, extrapolated from the sample.
    pub text_bytes: f64,
    /// Number of records that the reader left out of the sample, such as rows without text.
    pub left_out: u64,
    /// Files with records that cannot be read.
    pub bad_files: Vec<BadFile>,
}

/// A file of the sample with records that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadFile {
    /// The file.
    pub path: PathBuf,
    /// Index of its source.
    pub source: usize,
    /// Number of records that cannot be read.
    pub bad_records: u64,
    /// Number of documents that can.
    pub documents: u64,
}

/// Estimated token counts of a text with one tokenizer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cut {
    /// Estimated number of tokens of the whole text.
    pub tokens: f64,
    /// Share of the tokens that come after the first [`SHORT_LENGTH`] tokens of their document.
    pub long_share: f64,
}

impl TextSample {
    /// Reads documents from the files of a configuration, from `MOST_FILES` (64) of them at most.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read as the configuration describes, if one is standard input, or
    /// if there is no text.
    pub fn read(data: &DataConfig) -> Result<Self> {
        let corpus = Corpus::open(data)?;
        if let Some(file) = corpus.files().iter().find(|file| file.is_standard_input()) {
            let problem = Problem::usage("is read once, and a recipe needs to look at the text first");
            return Err(problem.at(file.path.display()).hint("write it to a file").into());
        }
        let files = corpus.files().len();
        let sampled: Vec<usize> =
            (0..files.min(MOST_FILES)).map(|n| n * files / files.min(MOST_FILES)).collect();
        let sampled_bytes: u64 = sampled.iter().map(|&n| corpus.files()[n].size_bytes.max(1)).sum();
        let mut documents = Vec::new();
        let mut text_bytes = 0.0;
        let mut left_out = 0;
        let mut bad_files = Vec::new();
        for &n in &sampled {
            let file_bytes = corpus.files()[n].size_bytes.max(1);
            let wanted = (SAMPLE_BYTES as f64 * file_bytes as f64 / sampled_bytes as f64) as u64;
            let file = corpus.only(n);
            let mut items = file.documents();
            let mut taken = 0;
            let known = documents.len();
            let mut bad_records = 0;
            let is_whole = loop {
                if taken > wanted {
                    break false;
                }
                match items.next().transpose()? {
                    Some(Item::Document(document)) => {
                        taken += document.text.len() as u64;
                        documents.push(document.text);
                    }
                    Some(Item::Rejected(rejected)) => {
                        left_out += 1;
                        bad_records += u64::from(rejected.rejection.reason == BAD_RECORD);
                    }
                    None => break true,
                }
            };
            let source = &corpus.files()[n];
            if bad_records > 0 {
                let (path, documents) = (source.path.to_path_buf(), (documents.len() - known) as u64);
                bad_files.push(BadFile { path, source: source.source, bad_records, documents });
            }
            if !is_whole && source.is_plain_text() && source.kind() == Kind::Text {
                // Plain text is as long as its file. The reader's position is no measure: it includes bytes
                // that were read ahead.
                text_bytes += source.size_bytes as f64;
                continue;
            }
            let share = items.position_bytes() as f64 / file_bytes as f64;
            text_bytes += if is_whole { taken as f64 } else { taken as f64 / share.clamp(f64::EPSILON, 1.0) };
        }
        if documents.iter().all(|document| document.trim().is_empty()) {
            return Err(Problem::usage("hold no text")
                .at("the files of the corpus")
                .hint("name others, or the field that holds the text")
                .into());
        }
        Ok(Self {
            documents,
            files,
            disk_bytes: corpus.size_bytes(),
            // The other files are assumed to have as much text per byte on the disk.
            text_bytes: text_bytes * corpus.size_bytes() as f64 / sampled_bytes as f64,
            left_out,
            bad_files,
        })
    }

    /// The documents that were read.
    pub fn documents(&self) -> &[String] {
        &self.documents
    }

    /// Returns the sample without the documents and passages that `judge` removes.
    #[must_use]
    pub fn filtered(mut self, judge: &Judge) -> Self {
        let judged = self.documents.iter().map(|text| judge.judge(text));
        let kept: Vec<String> = judged.filter(|one| one.rejection.is_none()).map(|one| one.text).collect();
        // `prepare` reports an error if nothing is left of the corpus.
        if !kept.is_empty() {
            self.text_bytes *= total_bytes(&kept) as f64 / total_bytes(&self.documents) as f64;
            self.documents = kept;
        }
        self
    }

    /// Trains a byte-level BPE tokenizer with `vocab_size` entries on the sample, and estimates the token
    /// counts of the whole text.
    pub fn cut(&self, vocab_size: usize) -> Result<Cut> {
        let config = TokenizerConfig { vocab_size, ..TokenizerConfig::default() };
        let family = plain_model(1, 64, vocab_size).family;
        let mut trainer = Trainer::new(TrainerOptions::new(&config, family, SHORT_LENGTH))?;
        trainer.add(&self.documents)?;
        let tokenizer = trainer.finish(|_| {})?.tokenizer;
        self.counted(&tokenizer)
    }

    fn counted(&self, tokenizer: &Tokenizer) -> Result<Cut> {
        let lengths: Vec<usize> = tokenizer.encode_corpus(&self.documents)?.iter().map(Vec::len).collect();
        let tokens: usize = lengths.iter().sum();
        let beyond: usize = lengths.iter().map(|&length| length.saturating_sub(SHORT_LENGTH)).sum();
        Ok(Cut {
            tokens: tokens as f64 * self.text_bytes / total_bytes(&self.documents) as f64,
            long_share: beyond as f64 / tokens.max(1) as f64,
        })
    }
}

fn total_bytes(documents: &[String]) -> usize {
    documents.iter().map(String::len).sum()
}

/// Guesses the unit of a document from the plain text among `files`: a file if there are many small files, a
/// paragraph if there are blank lines, else a line. `None` if no file is plain text.
pub fn document_unit(files: &[SourceFile]) -> Result<Option<DocumentUnit>> {
    let plain: Vec<&SourceFile> =
        files.iter().filter(|file| file.is_plain_text() && !file.is_standard_input()).collect();
    let Some(first) = plain.first() else { return Ok(None) };
    let bytes: u64 = plain.iter().map(|file| file.size_bytes).sum();
    if plain.len() > MOST_FILES && bytes / (plain.len() as u64) < 1 << 16 {
        return Ok(Some(DocumentUnit::File));
    }
    let mut beginning = Vec::new();
    let (text, kind) = first.open()?;
    if matches!(kind, Kind::Tar | Kind::Warc) {
        return Ok(Some(DocumentUnit::File));
    }
    text.take(SNIFFED_BYTES)
        .read_to_end(&mut beginning)
        .with_context(|| format!("cannot read `{}`", first.path.display()))?;
    let beginning = String::from_utf8_lossy(&beginning).replace("\r\n", "\n").replace('\r', "\n");
    let blank = beginning.split('\n').filter(|line| line.trim().is_empty()).count();
    // `split` returns one empty line after the last line end, so a text without blank lines counts 1.
    Ok(Some(if blank > 1 { DocumentUnit::Paragraph } else { DocumentUnit::Line }))
}
