//! Fast conversion of many texts to ids: a text is divided into chunks before blanks, and the ids of each
//! chunk are cached.
//!
//! The ids are always those of the `tokenizers` crate: if the ids of the chunks are not provably those of the
//! whole text, or an encoding is unusual, the crate encodes the text. The memory of all caches together is
//! bounded.

pub(super) mod byte_bpe;
mod cache;
mod pipeline;
mod unigram;
mod word_piece;

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use serde_json::Value;
use tokenizers::{NormalizedString, Normalizer};

use crate::tokenizer::{encode, prefix};
use byte_bpe::ByteBpe;
use cache::Cache;
use pipeline::Cuts;
use unigram::Unigram;
use word_piece::WordPiece;

/// Most bytes of all caches of one tokenizer together.
const CACHE_BYTES: usize = 64 << 20;

/// Most bytes of one cache: half a million entries.
const ONE_CACHE_BYTES: usize = 32 << 20;

/// Longest chunk in bytes that our own models encode.
const CHUNK_BYTES_MAX: usize = 4096;

/// The fast path of one tokenizer.
pub(super) struct Fast {
    /// The allowed cuts; `None` if each text must be encoded as a whole.
    cuts: Option<Cuts>,
    /// `None` if the crate's model encodes all chunks.
    model: Option<OwnModel>,
    /// True if a blank is put before each text that does not begin with one.
    adds_blank: bool,
    caches: Mutex<Vec<Cache>>,
}

/// Our own code for the models of the crate that it is faster than.
enum OwnModel {
    ByteBpe(Box<ByteBpe>),
    Unigram(Unigram),
    WordPiece(WordPiece),
}

impl OwnModel {
    /// The model of the tokenizer that `json` describes; `None` if the crate's is used.
    fn from_json(json: &Value) -> Option<Self> {
        let model = &json["model"];
        if pipeline::is_byte_level(json) {
            ByteBpe::new(model).map(|bpe| Self::ByteBpe(Box::new(bpe)))
        } else if pipeline::is_words_of_unigram(json) {
            Unigram::new(model).map(Self::Unigram)
        } else if pipeline::is_words_of_bert(json) {
            WordPiece::new(model).map(Self::WordPiece)
        } else {
            None
        }
    }
}

/// Removes the blank before a text from a pipeline if [`Fast`] can add it instead, so that texts can be cut;
/// returns true if it did.
pub(super) fn take_blank(json: &mut Value) -> bool {
    let is_alone = json["pre_tokenizer"]["type"] == "ByteLevel" && json["pre_tokenizer"][prefix::KEY] == true;
    if !is_alone {
        return false;
    }
    json["pre_tokenizer"][prefix::KEY] = false.into();
    let can_be_cut = pipeline::cuts(json).is_some();
    json["pre_tokenizer"][prefix::KEY] = (!can_be_cut).into();
    can_be_cut
}

/// The text, with a blank before it unless it begins with one.
pub(super) fn with_blank(text: &str) -> Cow<'_, str> {
    if text.is_empty() || text.starts_with(' ') { text.into() } else { format!(" {text}").into() }
}

impl Fast {
    /// The fast path for the tokenizer of `json`; `adds_blank` is true if [`take_blank`] removed the blank
    /// before texts from it.
    pub(super) fn new(json: &Value, adds_blank: bool) -> Self {
        let cuts = pipeline::cuts(json);
        let model = cuts.and_then(|_| OwnModel::from_json(json));
        Self { cuts, model, adds_blank, caches: Mutex::default() }
    }

    /// The ids of `text`; `plain` is the tokenizer itself, without the blank removed by [`take_blank`].
    pub(super) fn encode(&self, plain: &tokenizers::Tokenizer, text: &str) -> Result<Vec<u32>> {
        let Some(cuts) = self.cuts else { return encode(plain, text) };
        let text = if self.adds_blank && shows_first(plain, text) { with_blank(text) } else { text.into() };
        let mut cache = self.take_cache();
        // In most vocabularies a token has three or four bytes.
        let mut ids = Vec::with_capacity(text.len() / 4 + 8);
        let model = self.model.as_ref();
        let mut worker = Worker { plain, model, words: Vec::new(), buffers: unigram::Buffers::default() };
        let done = Chunker { cuts: Some(cuts) }
            .chunks(&text)
            .try_for_each(|chunk| worker.append_chunk(chunk, &mut cache, &mut ids));
        self.give_back(cache);
        done?;
        ids.shrink_to_fit();
        Ok(ids)
    }

    /// Takes a cache that no other thread uses.
    fn take_cache(&self) -> Cache {
        let free = self.caches.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.unwrap_or_else(|| Cache::new(ONE_CACHE_BYTES.min(CACHE_BYTES / rayon::current_num_threads())))
    }

    /// Keeps a cache for the next text; at most as many caches as the pool has threads.
    fn give_back(&self, cache: Cache) {
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        if caches.len() < rayon::current_num_threads() {
            caches.push(cache);
        }
    }
}

/// Returns true if the first character of `text` after normalization is not a blank. The normalizer may
/// remove characters before a blank.
fn shows_first(plain: &tokenizers::Tokenizer, text: &str) -> bool {
    // The normalizers that allow cuts keep these characters.
    if text.starts_with(|c: char| c == ' ' || c.is_ascii_graphic() || is_latin_letter(c)) {
        return true;
    }
    plain.get_normalizer().is_none()
        || normalized(plain, text).is_some_and(|text| !text.is_empty() && !text.starts_with(' '))
}

/// `text` after the tokenizer's normalizer; `None` if that fails.
fn normalized<'a>(plain: &tokenizers::Tokenizer, text: &'a str) -> Option<Cow<'a, str>> {
    let Some(normalizer) = plain.get_normalizer().filter(|_| !text.bytes().all(is_kept)) else {
        return Some(text.into());
    };
    let mut normalized = NormalizedString::from(text);
    normalizer.normalize(&mut normalized).ok()?;
    Some(normalized.get().to_string().into())
}

/// Returns true for blanks, small letters, digits and signs of ASCII: all normalizers that allow cuts keep them.
fn is_kept(byte: u8) -> bool {
    matches!(byte, b' '..=b'@' | b'['..=b'~')
}

/// Encodes the chunks of one text.
struct Worker<'a> {
    plain: &'a tokenizers::Tokenizer,
    model: Option<&'a OwnModel>,
    words: Vec<&'a str>,
    buffers: unigram::Buffers,
}

impl<'a> Worker<'a> {
    fn append_chunk(&mut self, chunk: &'a str, cache: &mut Cache, ids: &mut Vec<u32>) -> Result<()> {
        cache.append(chunk, ids, |cache, ids| {
            let is_done = match self.model.filter(|_| chunk.len() <= CHUNK_BYTES_MAX) {
                Some(OwnModel::ByteBpe(bpe)) => append_words(bpe, chunk, &mut self.words, cache, ids),
                Some(OwnModel::Unigram(unigram)) => normalized(self.plain, chunk)
                    .is_some_and(|text| unigram.append_chunk(&text, &mut self.buffers, ids)),
                Some(OwnModel::WordPiece(pieces)) => {
                    normalized(self.plain, chunk).is_some_and(|text| pieces.append_chunk(&text, ids))
                }
                None => false,
            };
            if !is_done {
                ids.extend(encode(self.plain, chunk)?);
            }
            Ok(())
        })
    }
}

/// Appends the ids of each word of `chunk`; false if it cannot be split into words.
fn append_words<'a>(
    bpe: &ByteBpe,
    chunk: &'a str,
    words: &mut Vec<&'a str>,
    cache: &mut Cache,
    ids: &mut Vec<u32>,
) -> bool {
    if !bpe.words(chunk, words) {
        return false;
    }
    if let [word] = words[..] {
        bpe.append_word(word, ids);
        return true;
    }
    for word in words {
        let Ok(()) = cache.append(word, ids, |_, ids| {
            bpe.append_word(word, ids);
            Ok::<(), Infallible>(())
        });
    }
    true
}

/// Divides texts into chunks where a normalizer and a pre-tokenizer allow it.
pub(super) struct Chunker {
    cuts: Option<Cuts>,
}

impl Chunker {
    /// The chunker for the `normalizer` and the `pre_tokenizer` of a tokenizer.json.
    pub(super) fn new(json: &Value) -> Self {
        Self { cuts: pipeline::text_cuts(json) }
    }

    /// The chunks of `text`, whose concatenation is the text.
    pub(super) fn chunks<'a>(&self, text: &'a str) -> impl Iterator<Item = &'a str> + use<'a> {
        let mut rest = text;
        let cuts = self.cuts;
        std::iter::from_fn(move || {
            let (chunk, more) = rest.split_at(cuts.map_or(rest.len(), |cuts| first_cut(rest, cuts)));
            rest = more;
            (!chunk.is_empty()).then_some(chunk)
        })
    }
}

/// The end of the first chunk of `text`.
fn first_cut(text: &str, cuts: Cuts) -> usize {
    let bytes = text.as_bytes();
    for place in 1..bytes.len() {
        let is_blank = bytes[place] == b' ' || (bytes[place] == b'\n' && cuts.at_line_feeds);
        if !is_blank {
            continue;
        }
        let before = bytes[place - 1];
        let is_right = if before < 0x80 {
            before.is_ascii_graphic()
        } else {
            let before = text[..place].chars().next_back();
            before.is_some_and(|c| if cuts.after_plain { is_latin_letter(c) } else { !c.is_whitespace() })
        };
        if is_right {
            return place;
        }
    }
    bytes.len()
}

/// Latin letters with accents: this range contains all of them, and otherwise only two arithmetic signs.
fn is_latin_letter(c: char) -> bool {
    ('\u{c0}'..='\u{24f}').contains(&c)
}

#[cfg(test)]
mod tests;
