//! A look at a text: how much there is of it, and how its documents are cut into tokens.

use std::io::Read;

use anyhow::Context;
use anyhow::Result;

use crate::config::DataConfig;
use crate::config::DocumentUnit;
use crate::config::TokenizerConfig;
use crate::corpus::Corpus;
use crate::corpus::Item;
use crate::corpus::Judge;
use crate::corpus::SourceFile;
use crate::error::Problem;
use crate::families::plain_model;
use crate::fs;
use crate::fs::Kind;
use crate::recipe::size::SHORT_LENGTH;
use crate::tokenizer::Tokenizer;
use crate::tokenizer::Trainer;
use crate::tokenizer::TrainerOptions;

/// Bytes of text that are read of all files together.
const SAMPLE_BYTES: u64 = 8 << 20;

/// Files that are looked into, spread evenly over all of them.
const MOST_FILES: usize = 64;

/// Bytes of a plain text that are looked at for blank lines.
const SNIFFED_BYTES: u64 = 1 << 16;

/// Some documents of a text, from all over its files.
#[derive(Debug, Clone)]
pub struct TextSample {
    documents: Vec<String>,
    /// Files of the whole text.
    pub files: usize,
    /// Their bytes on the disk.
    pub disk_bytes: u64,
    /// Bytes of the whole text as read, about: what the sample has, by the share of the files that it read.
    pub text_bytes: f64,
    /// Things that the reader left out of the sample, such as rows without text.
    pub left_out: u64,
}

/// What a tokenizer makes of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cut {
    /// Tokens of the whole text, about.
    pub tokens: f64,
    /// Share of them beyond the first tokens of their document, as many as a short row has.
    pub long_share: f64,
}

impl TextSample {
    /// Reads documents from all files of a configuration, or from some of very many; an error when a file
    /// cannot be read as the configuration says, or when there is no text.
    pub fn read(data: &DataConfig) -> Result<Self> {
        let corpus = Corpus::open(data)?;
        if let Some(file) = corpus.files().iter().find(|file| file.is_standard_input()) {
            let problem = Problem::usage("is read once, and a recipe needs to look at the text first");
            return Err(problem.at(file.path.display()).hint("write it to a file").into());
        }
        let files = corpus.files().len();
        let looked_at: Vec<usize> =
            (0..files.min(MOST_FILES)).map(|n| n * files / files.min(MOST_FILES)).collect();
        let bytes_of = |n: usize| corpus.files()[n].size_bytes.max(1);
        let looked_at_bytes: u64 = looked_at.iter().map(|&n| bytes_of(n)).sum();
        let (mut documents, mut text_bytes, mut left_out) = (Vec::new(), 0.0, 0);
        for &n in &looked_at {
            let wanted = (SAMPLE_BYTES as f64 * bytes_of(n) as f64 / looked_at_bytes as f64) as u64;
            let file = corpus.only(n);
            let (mut items, mut taken) = (file.documents(), 0);
            let is_whole = loop {
                if taken > wanted {
                    break false;
                }
                match items.next().transpose()? {
                    Some(Item::Document(document)) => {
                        taken += document.text.len() as u64;
                        documents.push(document.text);
                    }
                    Some(Item::Rejected(_)) => left_out += 1,
                    None => break true,
                }
            };
            let of_file = &corpus.files()[n];
            if !is_whole && of_file.is_plain_text() && of_file.kind() == Kind::Text {
                // What is read ahead says nothing of the text then.
                text_bytes += of_file.size_bytes as f64;
                continue;
            }
            let share = items.position_bytes() as f64 / bytes_of(n) as f64;
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
            // Of files that were not looked into, as much for each byte of the disk.
            text_bytes: text_bytes * corpus.size_bytes() as f64 / looked_at_bytes as f64,
            left_out,
        })
    }

    /// The documents that were read.
    pub fn documents(&self) -> &[String] {
        &self.documents
    }

    /// The same text without what `judge` leaves out.
    #[must_use]
    pub fn filtered(mut self, judge: &Judge) -> Self {
        let bytes = |documents: &[String]| documents.iter().map(String::len).sum::<usize>() as f64;
        let before = bytes(&self.documents);
        let judged = self.documents.iter().map(|text| judge.judge(text));
        let kept: Vec<String> = judged.filter(|one| one.rejection.is_none()).map(|one| one.text).collect();
        // `prepare` reports a corpus of which nothing is left.
        if !kept.is_empty() {
            self.text_bytes *= bytes(&kept) / before;
            self.documents = kept;
        }
        self
    }

    /// What a byte-level BPE of this size, trained on the sample, makes of the whole text.
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
        let bytes: usize = self.documents.iter().map(String::len).sum();
        Ok(Cut {
            tokens: tokens as f64 * self.text_bytes / bytes as f64,
            long_share: beyond as f64 / tokens.max(1) as f64,
        })
    }
}

/// What one document of these files is, as far as plain text tells: a file where there are many small ones, a
/// paragraph where there are blank lines, else a line. `None` where no file is plain text.
pub fn document_unit(files: &[SourceFile]) -> Result<Option<DocumentUnit>> {
    let plain: Vec<&SourceFile> =
        files.iter().filter(|file| file.is_plain_text() && !file.is_standard_input()).collect();
    let Some(first) = plain.first() else { return Ok(None) };
    let bytes: u64 = plain.iter().map(|file| file.size_bytes).sum();
    if plain.len() > MOST_FILES && bytes / (plain.len() as u64) < 1 << 16 {
        return Ok(Some(DocumentUnit::File));
    }
    let mut beginning = Vec::new();
    let (text, kind) = fs::open_content(&first.path)?;
    if matches!(kind, Kind::Tar | Kind::Warc) {
        return Ok(Some(DocumentUnit::File));
    }
    let cannot_read = || format!("cannot read `{}`", first.path.display());
    text.take(SNIFFED_BYTES).read_to_end(&mut beginning).with_context(cannot_read)?;
    let beginning = String::from_utf8_lossy(&beginning).replace("\r\n", "\n").replace('\r', "\n");
    let blank = beginning.split('\n').filter(|line| line.trim().is_empty()).count();
    // What follows the last end of a line counts as an empty one.
    Ok(Some(if blank > 1 { DocumentUnit::Paragraph } else { DocumentUnit::Line }))
}
