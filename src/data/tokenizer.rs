//! Text to token ids and back: trains a tokenizer, or loads any tokenizer.json; finds the special tokens by
//! role.
//!
//! This is the only module that uses the `tokenizers` crate. It reads no corpus and writes no file: a
//! tokenizer is a list of named files, which other modules write.

use std::path::Path;

use anyhow::Result;
use rayon::prelude::*;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokenizers::{AddedToken, PreTokenizerWrapper};

use crate::tokenizer::fast::Fast;
use base::error::Problem;
use base::fs;
use base::quietly::quietly;

mod bpe;
mod check;
mod fast;
mod fertility;
mod files;
mod framing;
mod gpt2;
mod hash;
mod lattice;
mod load;
mod prefix;
mod published;
mod special;
mod train;
mod unknown;
mod words;

pub use fertility::{Comparison, Fertility};
pub use framing::{Frame, Framing, SpecialRow};
pub use load::{COMPANIONS, TOKENIZER_JSON};
pub use special::SpecialTokens;
pub use train::{PieceCounts, Trained, Trainer, TrainerOptions};
pub use unknown::{MUCH_UNKNOWN, UnknownText};
pub use words::WordBoundaries;

/// The largest file of a tokenizer that is read, in bytes.
pub const TOKENIZER_BYTES_MAX: u64 = 64 << 20;

/// No embedding has more rows than this; a larger id means that the file is broken.
const VOCAB_SIZE_MAX: usize = 1 << 24;

/// Token ids of a text and the position of each token in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encoded {
    /// The ids, without special tokens around them.
    pub ids: Vec<u32>,
    /// Start and end of each token in bytes of the text.
    pub offsets: Vec<(usize, usize)>,
}

/// A tokenizer with its files.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The same tokenizer, except that control tokens in a text are encoded as text.
    plain: tokenizers::Tokenizer,
    fast: Fast,
    special: SpecialTokens,
    special_ids: Vec<u32>,
    vocab_size: usize,
    fingerprint: String,
    files: Vec<(String, Vec<u8>)>,
    /// The settings of `tokenizer_config.json` that agree with tokenizer.json.
    settings: Map<String, Value>,
    framing: Framing,
    gives_token_types: bool,
    truncates_left: bool,
    model_max_length: Option<usize>,
    /// True if control tokens in the text of an example are encoded as text.
    splits_special_tokens: bool,
    notes: Vec<String>,
}

impl Tokenizer {
    /// Loads `path`: a `tokenizer.json`, or a folder with one. Files that belong to it are loaded as well.
    pub fn load(path: &Path) -> Result<Self> {
        let load::Found { place, files, model } = load::read(path)?;
        Self::from_published(files, &model, &place.display().to_string())
    }

    /// Builds a tokenizer from its named files, which must include `tokenizer.json`; `place` names it in
    /// errors.
    pub fn from_files(files: Vec<(String, Vec<u8>)>, place: &str) -> Result<Self> {
        Self::from_published(files, &Value::Null, place)
    }

    /// Builds a tokenizer in the way of the class that its files, or the `config.json` of its model, name.
    fn from_published(files: Vec<(String, Vec<u8>)>, model: &Value, place: &str) -> Result<Self> {
        let published = published::read(files, model, place)?;
        let mut json = published.json;
        let inner = published.inner;
        let roles = &published.roles;
        let fingerprint = fingerprint(&json);
        let framing = Framing::new(&inner, place)?;
        let special = special::find(&inner, roles, &framing, place)?;
        let special_ids = special::all_ids(&inner, &special);
        let vocab_size = inner.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1);
        if vocab_size > VOCAB_SIZE_MAX {
            return Err(Problem::new(format!(
                "has a token with id {}, at most {} is possible",
                vocab_size - 1,
                VOCAB_SIZE_MAX - 1
            ))
            .at(place)
            .into());
        }
        let all_special = published.split_special_tokens == Some(true);
        let is_text = |token: &AddedToken| {
            special::is_control(&inner, roles, &special, token) || (all_special && token.special)
        };
        let (mut plain, added_tokens) = published::plain(&inner, &published.added, is_text, place)?;
        let settings = files::settings_of(&json);
        let files = files::complete(published.files, &special, &inner, roles, published.config);
        json["added_tokens"] = added_tokens;
        let adds_blank = fast::take_blank(&mut json);
        if adds_blank {
            plain.with_pre_tokenizer(Option::<PreTokenizerWrapper>::deserialize(&json["pre_tokenizer"])?);
        }
        let fast = Fast::new(&json, adds_blank);
        Ok(Self {
            inner,
            plain,
            fast,
            special,
            special_ids,
            vocab_size,
            fingerprint,
            files,
            settings,
            framing,
            gives_token_types: published.gives_token_types,
            truncates_left: published.truncates_left,
            model_max_length: published.model_max_length,
            splits_special_tokens: published.split_special_tokens != Some(false),
            notes: published.notes,
        })
    }

    /// Number of rows that an embedding for this tokenizer needs: the largest id plus one.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The special tokens by role.
    pub fn special(&self) -> &SpecialTokens {
        &self.special
    }

    /// Ids of all special tokens, sorted.
    pub fn special_ids(&self) -> &[u32] {
        &self.special_ids
    }

    /// Ids of all tokens that are not special, sorted.
    pub fn ordinary_ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self
            .inner
            .get_vocab(true)
            .into_values()
            .filter(|id| self.special_ids.binary_search(id).is_err())
            .collect();
        ids.sort_unstable();
        ids
    }

    /// Ids of `text` without special tokens around them; special tokens in the text are recognised.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        encode(&self.inner, text)
    }

    /// Ids of the texts of examples: as [`encode_corpus`](Self::encode_corpus), unless the tokenizer's files
    /// specify that special tokens are recognised in them (`split_special_tokens: false`).
    pub fn encode_examples<T: AsRef<str> + Sync>(&self, texts: &[T]) -> Result<Vec<Vec<u32>>> {
        if self.splits_special_tokens {
            return self.encode_corpus(texts);
        }
        texts.par_iter().map(|text| self.encode(text.as_ref())).collect()
    }

    /// Ids of many texts that are only content: a `<mask>` in them is six characters, not the mask token.
    /// Added tokens without such a role are recognised.
    pub fn encode_corpus<T: AsRef<str> + Sync>(&self, texts: &[T]) -> Result<Vec<Vec<u32>>> {
        texts.par_iter().map(|text| self.fast.encode(&self.plain, text.as_ref())).collect()
    }

    /// Ids of each word separately, as transformers' `is_split_into_words` returns them. The tokenizer.json
    /// determines if each word is encoded as after a blank; see [`Self::for_words`].
    pub fn encode_words(&self, words: &[&str]) -> Result<Vec<Vec<u32>>> {
        self.encode_examples(words)
    }

    /// As [`encode`](Self::encode), with the position of each token.
    pub fn encode_with_offsets(&self, text: &str) -> Result<Encoded> {
        let encoding = quietly(|| self.inner.encode(text, false)).map_err(cannot_encode)?;
        Ok(Encoded { ids: encoding.get_ids().to_vec(), offsets: encoding.get_offsets().to_vec() })
    }

    /// The text of `ids`.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        quietly(|| self.inner.decode(ids, skip_special))
            .map_err(|message| Problem::new(format!("cannot decode token ids: {message}")).into())
    }

    /// The token with this id, as spelled in the vocabulary.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The id of a token, as spelled in the vocabulary.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// SHA-256 of the canonical tokenizer.json (sorted keys, no padding, no truncation), in hexadecimal.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The longest sequence in tokens, including special tokens, according to its `tokenizer_config.json`;
    /// `None` if that file has no length, or an unlimited one.
    pub fn model_max_length(&self) -> Option<usize> {
        self.model_max_length
    }

    /// The same tokenizer, with this longest sequence in its files.
    #[must_use]
    pub fn with_model_max_length(self, length: usize) -> Self {
        let files = files::with_setting(self.files, "model_max_length", length);
        Self { files, model_max_length: (length > 0).then_some(length), ..self }
    }

    /// The same tokenizer, which encodes control tokens in the text of an example as text if `splits` is
    /// true, otherwise as tokens.
    #[must_use]
    pub fn with_split_special_tokens(self, splits: bool) -> Self {
        // In transformers `true` applies to all special tokens; to encode only control tokens as text, the
        // key is left out.
        let files = if splits {
            files::without_setting(self.files, "split_special_tokens")
        } else {
            files::with_setting(self.files, "split_special_tokens", false)
        };
        Self { files, splits_special_tokens: splits, ..self }
    }

    /// The special tokens around one text and a pair of texts, and their token types.
    pub fn framing(&self) -> &Framing {
        &self.framing
    }

    /// Returns true if models get the token types of [`framing`](Self::framing), according to
    /// `model_input_names`.
    pub fn gives_token_types(&self) -> bool {
        self.gives_token_types
    }

    /// Returns true if texts that are too long lose their beginning instead of their end (`truncation_side`).
    pub fn truncates_left(&self) -> bool {
        self.truncates_left
    }

    /// Returns true if a token has a role but occurs neither around texts nor in them, such as padding.
    pub fn is_unused_control(&self, id: u32) -> bool {
        let Framing { single, pair } = &self.framing;
        let rows = [single, pair].map(|frame| [frame.before, frame.between, frame.after]);
        let is_around = rows.iter().flatten().any(|row| row.ids().any(|other| other == id));
        let added = self.plain.get_added_tokens_decoder();
        !is_around
            && self.splits_special_tokens
            && self.special.unk != Some(id)
            && self.token(id).is_none_or(|token| added.values().any(|t| t.content == token && t.special))
    }

    /// Notes for the log: files and keys that were ignored, or overridden by others.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// A tokenizer that encodes each word as after a blank, including the first word of a text, if its
    /// vocabulary has blanks before words.
    pub fn for_words(self) -> Result<Self> {
        let mut json: Value =
            serde_json::from_slice(load::content(&self.files, TOKENIZER_JSON).unwrap_or_default())?;
        if prefix::is_added(&json) != Some(false) {
            return Ok(self);
        }
        prefix::add(&mut json);
        let mut settings = files::settings_of(&json);
        // Classes that rebuild their pipelines read this key.
        settings.insert(prefix::KEY.into(), true.into());
        let files = files::with(self.files, TOKENIZER_JSON, &json);
        let new = Self::from_files(files::with_settings(files, settings), TOKENIZER_JSON)?;
        Ok(Self { notes: self.notes, ..new })
    }

    /// Returns true if `tokenizer_config.json` requests the blank before the first word, which tokenizer.json
    /// may not have.
    pub fn asks_for_words(&self) -> bool {
        files::setting(&self.files, prefix::KEY) == Some(true.into())
    }

    /// The files for a model with or without token types. Their `tokenizer_config.json` agrees with their
    /// `tokenizer.json`.
    pub fn files_of_model(&self, has_token_types: bool) -> Vec<(String, Vec<u8>)> {
        let mut settings = self.settings.clone();
        let has_token_types = has_token_types && self.gives_token_types;
        settings.insert(files::INPUT_NAMES.into(), files::input_names(has_token_types));
        settings.extend(files::class_of_both(&self.files));
        files::with_settings(self.files.clone(), settings)
    }

    /// Name and content of each file: the files that `AutoTokenizer.from_pretrained` needs in a folder.
    pub fn files(&self) -> &[(String, Vec<u8>)] {
        &self.files
    }
}

fn encode(inner: &tokenizers::Tokenizer, text: &str) -> Result<Vec<u32>> {
    Ok(quietly(|| inner.encode_fast(text, false)).map_err(cannot_encode)?.get_ids().to_vec())
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that `map_err` wants")]
fn cannot_encode(message: String) -> Problem {
    Problem::new(format!("cannot tokenize a text: {message}"))
}

fn fingerprint(json: &Value) -> String {
    let mut canonical = json.clone();
    canonical.sort_all_objects();
    fs::sha256_of(&[canonical.to_string().as_bytes()])
}

#[cfg(test)]
mod tests;
