//! Trains a tokenizer: counts words as texts come, then learns one of three kinds of vocabulary from the
//! counts.
//!
//! Memory holds distinct pieces of text, bounded, and never the corpus. The files are a function of the texts
//! and the options: the same for any number of threads, in any process.

mod byte_level;
mod count;
mod lattice;
mod names;
mod pieces;
mod recipe;
mod unigram;
mod word_piece;
mod words;

#[cfg(test)]
mod tests;

use anyhow::Result;
use serde_json::Value;
use serde_json::json;

use crate::config::TokenizerAlgorithm;
use crate::config::TokenizerConfig;
use crate::error::Problem;
use crate::families::Family;
use crate::tokenizer::Tokenizer;
use crate::tokenizer::files;
use crate::tokenizer::load::NamedFile;
pub use count::PieceCounts;
use names::Names;
use recipe::Recipe;
use words::WordCounter;
use words::Words;

/// What to train.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrainerOptions {
    /// Whose special tokens to use.
    pub family: Family,
    /// The kind of tokenizer.
    pub algorithm: TokenizerAlgorithm,
    /// Entries of the vocabulary, special tokens included; a small corpus may give fewer.
    pub vocab_size: usize,
    /// Round the size up to a multiple of this, and fill up what the corpus does not give.
    pub pad_vocab_to_multiple_of: Option<usize>,
    /// Pairs or pieces seen fewer times than this get no entry.
    pub min_frequency: u64,
    /// Most characters of the alphabet of a WordPiece; absent where the vocabulary decides.
    pub limit_alphabet: Option<usize>,
    /// Turn all letters into small ones.
    pub lowercase: bool,
    /// Take accents off.
    pub strip_accents: bool,
    /// Put a blank before a text that begins with none; byte-level BPE only.
    pub add_prefix_space: bool,
    /// Longest input of the model, special tokens included; transformers reads it from the tokenizer's
    /// files.
    pub model_max_length: usize,
}

impl TrainerOptions {
    /// What a configuration asks for.
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

    /// Entries to learn, rounded up.
    fn wanted_size(&self) -> usize {
        self.vocab_size.next_multiple_of(self.pad_vocab_to_multiple_of.unwrap_or(1).max(1))
    }

    /// Entries that there must be in the end, used or not.
    fn filled_size(&self) -> usize {
        if self.pad_vocab_to_multiple_of.is_some() { self.wanted_size() } else { 0 }
    }

    fn changes_letters(&self) -> bool {
        self.lowercase || self.strip_accents
    }

    /// The smallest vocabulary: special tokens and the alphabet.
    fn least_size(&self) -> usize {
        Names::of(self.family).order.len()
            + match self.algorithm {
                TokenizerAlgorithm::ByteLevelBpe => 256,
                // Printable ASCII: 32 signs, and letters and digits at the beginning of words and inside.
                TokenizerAlgorithm::WordPiece => 32 + 2 * if self.lowercase { 36 } else { 62 },
                // Bytes, printable ASCII.
                TokenizerAlgorithm::Unigram => 256 + 95,
            }
    }
}

/// A new tokenizer, and what people should know about its training.
pub struct Trained {
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    /// One sentence each: what was left out of training, what is unknown.
    pub notes: Vec<String>,
}

/// Counts words, then learns from the counts.
pub struct Trainer {
    options: TrainerOptions,
    recipe: Recipe,
    words: WordCounter,
}

/// What an algorithm learns from.
struct Task<'a> {
    words: Vec<(Box<str>, u64)>,
    names: &'a Names,
    options: &'a TrainerOptions,
    vocab_size: usize,
}

/// What an algorithm gives.
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
    /// A trainer that has seen no text; a vocabulary too small for its alphabet is an error.
    pub fn new(options: TrainerOptions) -> Result<Self> {
        let (size, least) = (options.vocab_size, options.least_size());
        if size < least {
            return Err(Problem::usage(format!(
                "is {size}, a vocabulary of this kind has at least {least} entries"
            ))
            .at("tokenizer.vocab_size")
            .into());
        }
        let recipe = Recipe::of(&options);
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

    /// Adds the counts of some texts. Texts that are counted apart must be added in one order everywhere: where memory
    /// is short, what is forgotten depends on it.
    pub fn add_counts(&mut self, counts: PieceCounts) {
        self.words.add(counts);
    }

    /// Learns the vocabulary; `progress` gets its size as it grows.
    pub fn finish(mut self, progress: impl FnMut(usize)) -> Result<Trained> {
        let chunks = self.take_counts();
        let words = self.cut(&chunks)?;
        drop(chunks);
        self.learn(words, progress)
    }

    /// What was counted of all texts, to be cut into words.
    pub fn take_counts(&mut self) -> PieceCounts {
        self.words.take_chunks()
    }

    /// The words of a part of what was counted, here or in another process.
    pub fn cut(&self, counts: &PieceCounts) -> Result<PieceCounts> {
        self.words.cut(counts)
    }

    /// Learns the vocabulary from the words of all that was counted.
    pub fn learn(self, words: PieceCounts, progress: impl FnMut(usize)) -> Result<Trained> {
        let Self { options, recipe, words: counter } = self;
        let names = Names::of(options.family);
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
