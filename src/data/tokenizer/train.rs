//! Trains a tokenizer: counts words as texts arrive, and learns one of three kinds of vocabulary from the
//! counts.
//!
//! Only a bounded number of distinct pieces of text is in memory, never the corpus. The files are a function
//! of the texts and the options: the same for any number of threads, in any process.

mod byte_level;
mod count;
mod names;
mod pieces;
mod recipe;
mod unigram;
mod word_piece;
mod words;

#[cfg(test)]
mod tests;

use anyhow::Result;
use serde_json::{Value, json};

use crate::tokenizer::load::NamedFile;
use crate::tokenizer::{Tokenizer, files};
use base::error::Problem;
use base::families::Family;
use config::{TokenizerAlgorithm, TokenizerConfig};
pub use count::PieceCounts;
use names::Names;
use recipe::Recipe;
use words::{WordCounter, Words};

/// Options of the training.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrainerOptions {
    /// Family whose special tokens are used.
    pub family: Family,
    /// The kind of tokenizer.
    pub algorithm: TokenizerAlgorithm,
    /// Size of the vocabulary, including special tokens; a small corpus may give fewer entries.
    pub vocab_size: usize,
    /// Round the size up to a multiple of this number, and add unused entries if the corpus does not give
    /// enough.
    pub pad_vocab_to_multiple_of: Option<usize>,
    /// Pairs or pieces that occur fewer times than this get no entry.
    pub min_frequency: u64,
    /// Most characters in the alphabet of a WordPiece; `None` if the vocabulary size determines it.
    pub limit_alphabet: Option<usize>,
    /// Convert all letters to lower case.
    pub lowercase: bool,
    /// Remove accents.
    pub strip_accents: bool,
    /// Put a blank before a text that does not begin with one; byte-level BPE only.
    pub add_prefix_space: bool,
    /// Longest input of the model, including special tokens; transformers reads it from the tokenizer's
    /// files.
    pub model_max_length: usize,
}

impl TrainerOptions {
    /// The options of a configuration.
    pub fn new(config: &TokenizerConfig, family: Family, model_max_length: usize) -> Self {
        Self {
            family,
            algorithm: config.algorithm,
            vocab_size: config.vocab_size,
            pad_vocab_to_multiple_of: config.pad_vocab_to_multiple_of,
            min_frequency: config.min_frequency,
            limit_alphabet: config.limit_alphabet,
            lowercase: config.lowercase,
            strip_accents: config.strip_accents,
            add_prefix_space: config.add_prefix_space,
            model_max_length,
        }
    }

    /// Number of entries to learn, rounded up.
    fn wanted_size(&self) -> usize {
        self.vocab_size.next_multiple_of(self.pad_vocab_to_multiple_of.unwrap_or(1).max(1))
    }

    /// Minimal number of entries at the end, used or not.
    fn filled_size(&self) -> usize {
        if self.pad_vocab_to_multiple_of.is_some() { self.wanted_size() } else { 0 }
    }

    fn changes_letters(&self) -> bool {
        self.lowercase || self.strip_accents
    }

    /// The smallest possible vocabulary: special tokens and the alphabet.
    fn least_size(&self) -> usize {
        Names::new(self.family).order.len()
            + match self.algorithm {
                TokenizerAlgorithm::ByteLevelBpe => 256,
                // Printable ASCII: 32 signs, and letters and digits at the beginning and inside of words.
                TokenizerAlgorithm::WordPiece => 32 + 2 * if self.lowercase { 36 } else { 62 },
                // Bytes and printable ASCII.
                TokenizerAlgorithm::Unigram => 256 + 95,
            }
    }
}

/// A new tokenizer, and notes on its training.
pub struct Trained {
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    /// Notes of one sentence each: text that was left out of training, unknown words.
    pub notes: Vec<String>,
}

/// Counts words, and learns a vocabulary from the counts.
pub struct Trainer {
    options: TrainerOptions,
    recipe: Recipe,
    words: WordCounter,
}

/// The input of a learning algorithm.
struct Task<'a> {
    words: Vec<(Box<str>, u64)>,
    names: &'a Names,
    options: &'a TrainerOptions,
    vocab_size: usize,
}

/// The output of a learning algorithm.
struct Learned {
    /// `model` of the tokenizer.json.
    model: Value,
    /// tokenizer_config.json.
    config: Value,
    /// The vocabulary in the files of older readers.
    files: Vec<NamedFile>,
    notes: Vec<String>,
}

impl Trainer {
    /// A trainer without texts; an error if the vocabulary is too small for its alphabet.
    pub fn new(options: TrainerOptions) -> Result<Self> {
        let size = options.vocab_size;
        let least = options.least_size();
        if size < least {
            return Err(Problem::usage(format!(
                "is {size}, a vocabulary of this kind has at least {least} entries"
            ))
            .at("tokenizer.vocab_size")
            .into());
        }
        let recipe = Recipe::new(&options);
        let words = WordCounter::new(&recipe.normalizer, &recipe.pre_tokenizer)?;
        Ok(Self { options, recipe, words })
    }

    /// Counts the words of some texts, in parallel.
    pub fn add(&mut self, texts: &[impl AsRef<str> + Sync]) -> Result<()> {
        self.add_counts(self.count(texts)?);
        Ok(())
    }

    /// The counts of some texts, for [`Self::add_counts`] of this trainer or of one in another process.
    pub fn count(&self, texts: &[impl AsRef<str> + Sync]) -> Result<PieceCounts> {
        self.words.count(texts)
    }

    /// Adds the counts of some texts. Texts that are counted separately must be added in the same order
    /// everywhere: if memory is short, the order determines which texts are dropped.
    pub fn add_counts(&mut self, counts: PieceCounts) {
        self.words.add(counts);
    }

    /// Learns the vocabulary; `progress` is called with its growing size.
    pub fn finish(mut self, progress: impl FnMut(usize)) -> Result<Trained> {
        let chunks = self.take_counts();
        let words = self.cut(&chunks)?;
        drop(chunks);
        self.learn(words, progress)
    }

    /// The counts of all texts, to be divided into words.
    pub fn take_counts(&mut self) -> PieceCounts {
        self.words.take_chunks()
    }

    /// The words of a part of the counts, which may come from another process.
    pub fn cut(&self, counts: &PieceCounts) -> Result<PieceCounts> {
        self.words.cut(counts)
    }

    /// Learns the vocabulary from the words of all counts.
    pub fn learn(self, words: PieceCounts, progress: impl FnMut(usize)) -> Result<Trained> {
        let Self { options, recipe, words: counter } = self;
        let names = Names::new(options.family);
        let Words { words, mut notes } = counter.finish(words);
        let task = Task { words, names: &names, options: &options, vocab_size: options.wanted_size() };
        let learned = match options.algorithm {
            TokenizerAlgorithm::ByteLevelBpe => byte_level::learn(task, progress),
            TokenizerAlgorithm::WordPiece => word_piece::learn(task, progress),
            TokenizerAlgorithm::Unigram => unigram::learn(task, progress),
        };
        notes.extend(learned.notes);
        let json = json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": names.added_tokens(options.algorithm != TokenizerAlgorithm::WordPiece),
            "normalizer": recipe.normalizer,
            "pre_tokenizer": recipe.pre_tokenizer,
            "post_processor": names.post_processor(&options),
            "decoder": recipe.decoder,
            "model": learned.model,
        });
        let mut all = vec![
            ("tokenizer.json".to_string(), files::pretty(&json)),
            ("tokenizer_config.json".to_string(), files::pretty(&learned.config)),
        ];
        all.extend(learned.files);
        Ok(Trained { tokenizer: Tokenizer::from_files(all, "the trained tokenizer")?, notes })
    }
}
