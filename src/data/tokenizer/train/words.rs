//! Counts the words of texts: texts are first counted in chunks, and only distinct chunks are divided into
//! words.

use anyhow::Result;
use rayon::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};
use tokenizers::{
    Normalizer, NormalizerWrapper, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer,
    PreTokenizerWrapper,
};

use crate::tokenizer::fast::Chunker;
use crate::tokenizer::train::count::{Counted, Counts, PieceCounts};
use crate::tokenizer::{fast, prefix};
use base::error::Problem;

/// Most distinct chunks that are kept while counting: about 100 MB.
const CHUNKS_MAX: usize = 900_000;

/// Longer chunks (text without blanks) are divided into words immediately, so that the kept chunks are short.
const CHUNK_BYTES_MAX: usize = 64;

/// Longer words are ignored: nothing is learnt from them.
const WORD_BYTES_MAX: usize = 256;

/// Counts the words that a tokenizer's own normalizer and pre-tokenizer make.
pub(super) struct WordCounter {
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: PreTokenizerWrapper,
    chunker: Chunker,
    /// True if a blank is put before each text that does not begin with one; the pre-tokenizer itself adds no
    /// blank.
    adds_blank: bool,
    chunks: Counts,
    notes: Vec<String>,
}

/// Distinct words, sorted, with their counts.
pub(super) struct Words {
    pub(super) words: Vec<(Box<str>, u64)>,
    /// Notes on the counts, for people.
    pub(super) notes: Vec<String>,
}

impl WordCounter {
    /// A counter for these parts of a tokenizer.json.
    pub(super) fn new(normalizer: &Value, pre_tokenizer: &Value) -> Result<Self> {
        let mut json = json!({"normalizer": normalizer, "pre_tokenizer": pre_tokenizer});
        // Texts are divided into chunks, and only the first chunk is at the beginning of the text.
        let adds_blank = pre_tokenizer[prefix::KEY] == true;
        if adds_blank {
            json["pre_tokenizer"][prefix::KEY] = false.into();
        }
        Ok(Self {
            normalizer: Option::deserialize(normalizer)?,
            pre_tokenizer: PreTokenizerWrapper::deserialize(&json["pre_tokenizer"])?,
            chunker: Chunker::new(&json),
            adds_blank,
            chunks: Counts::new(CHUNKS_MAX),
            notes: Vec::new(),
        })
    }

    /// Counts the chunks of some texts, in parallel.
    pub(super) fn count<T: AsRef<str> + Sync>(&self, texts: &[T]) -> Result<PieceCounts> {
        let Self { normalizer, pre_tokenizer, chunker, adds_blank, .. } = self;
        // Whether texts can be divided into words does not depend on the text; this call finds out.
        split("a", normalizer.as_ref(), pre_tokenizer)?;
        Ok(PieceCounts::count(texts, |text, count| {
            let text = if *adds_blank { fast::with_blank(text) } else { text.into() };
            for chunk in chunker.chunks(&text) {
                if chunk.len() <= CHUNK_BYTES_MAX {
                    count(chunk);
                    continue;
                }
                let Ok(words) = split(chunk, normalizer.as_ref(), pre_tokenizer) else { continue };
                // The words in their original spelling, so that each is the same single word when divided
                // again.
                for (_, (start, end), _) in words.get_splits(OffsetReferential::Original, OffsetType::Byte) {
                    chunk.get(start..end).into_iter().for_each(&mut *count);
                }
            }
        }))
    }

    /// Adds the chunks of some texts.
    pub(super) fn add(&mut self, chunks: PieceCounts) {
        self.chunks.add(chunks);
    }

    /// Takes all chunks, sorted.
    pub(super) fn take_chunks(&mut self) -> PieceCounts {
        let Counted { counts, forgotten, missed_max } =
            std::mem::replace(&mut self.chunks, Counts::new(CHUNKS_MAX)).finish();
        if forgotten > 0 {
            self.notes.push(format!(
                "{forgotten} rare chunks of text were forgotten while counting; each was seen {missed_max} times \
                 at most"
            ));
        }
        counts
    }

    /// Divides chunks into words, in parallel.
    pub(super) fn cut(&self, chunks: &PieceCounts) -> Result<PieceCounts> {
        let words: Vec<Vec<(Box<str>, u64)>> = chunks
            .0
            .par_chunks(4096)
            .map(|some| {
                let mut words = Vec::new();
                for (chunk, count) in some {
                    let cut = split(chunk, self.normalizer.as_ref(), &self.pre_tokenizer)?;
                    let pieces = cut.get_splits(OffsetReferential::Normalized, OffsetType::None);
                    words.extend(pieces.into_iter().map(|(word, ..)| (Box::from(word), *count)));
                }
                Ok(summed(words))
            })
            .collect::<Result<_>>()?;
        Ok(PieceCounts(summed(words.into_iter().flatten().collect())))
    }

    /// The words to learn from, of the words of all chunks.
    pub(super) fn finish(self, words: PieceCounts) -> Words {
        let mut words = summed(words.0);
        let mut notes = self.notes;
        let all = words.len();
        words.retain(|(word, _)| word.len() <= 2 * WORD_BYTES_MAX);
        if words.len() < all {
            notes.push(format!(
                "left out of the tokenizer's training: {} of {all} words, longer than {WORD_BYTES_MAX} characters",
                all - words.len()
            ));
        }
        Words { words, notes }
    }
}

/// Sorts words and adds up the counts of equal ones.
fn summed(mut words: Vec<(Box<str>, u64)>) -> Vec<(Box<str>, u64)> {
    words.sort_unstable();
    words.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        kept.1 += if is_same { next.1 } else { 0 };
        is_same
    });
    words
}

fn split(
    text: &str,
    normalizer: Option<&NormalizerWrapper>,
    pre_tokenizer: &PreTokenizerWrapper,
) -> Result<PreTokenizedString> {
    let mut split = PreTokenizedString::from(text);
    let normalized =
        normalizer.map_or(Ok(()), |normalizer| split.normalize(|text| normalizer.normalize(text)));
    normalized
        .and_then(|()| pre_tokenizer.pre_tokenize(&mut split))
        .map_err(|e| Problem::new(format!("cannot split a text into words: {e}")))?;
    Ok(split)
}
