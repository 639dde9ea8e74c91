//! Text to token ids and back: trains a tokenizer, or takes any tokenizer.json; knows the special tokens by
//! role.
//!
//! It wraps the `tokenizers` crate and is the only module that does. It reads no corpus and writes no file: a
//! tokenizer is a list of named files, which others place.

use std::path::Path;

use anyhow::Result;
use rayon::prelude::*;
use serde::Deserialize;
use serde_json::Map;
use serde_json::Value;
use tokenizers::AddedToken;
use tokenizers::PreTokenizerWrapper;

use crate::error::Problem;
use crate::fs;
use crate::quietly::quietly;
use crate::tokenizer::fast::Fast;

mod bpe;
mod check;
mod fast;
mod fertility;
mod files;
mod framing;
mod gpt2;
mod hash;
mod load;
mod prefix;
mod published;
mod special;
mod train;
mod unknown;
mod words;

pub use fertility::Comparison;
pub use fertility::Fertility;
pub use framing::Frame;
pub use framing::Framing;
pub use framing::SpecialRow;
pub use load::COMPANIONS;
pub use load::TOKENIZER_JSON;
pub use special::SpecialTokens;
pub use train::PieceCounts;
pub use train::Trained;
pub use train::Trainer;
pub use train::TrainerOptions;
pub use unknown::MUCH_UNKNOWN;
pub use unknown::UnknownText;
pub use words::WordBoundaries;

/// The largest file of a tokenizer that is read, in bytes.
pub const TOKENIZER_BYTES_MAX: u64 = 64 << 20;

/// No embedding has more rows than this; a larger id is a broken file.
const VOCAB_SIZE_MAX: usize = 1 << 24;

/// Token ids of a text and where each token stands in it.
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
    /// The same one, but control tokens that are spelled out in a text are text.
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
    /// True if control tokens that are spelled out in the text of an example are text.
    splits_special_tokens: bool,
    notes: Vec<String>,
}

impl Tokenizer {
    /// Loads `path`: a `tokenizer.json`, or a folder that holds one. Files that belong to it are taken along.
    pub fn load(path: &Path) -> Result<Self> {
        let load::Found { place, files, model } = load::read(path)?;
        Self::from_published(files, &model, &place.display().to_string())
    }

    /// Builds a tokenizer from its named files, of which `tokenizer.json` must be one; `place` names it in
    /// errors.
    pub fn from_files(files: Vec<(String, Vec<u8>)>, place: &str) -> Result<Self> {
        Self::from_published(files, &Value::Null, place)
    }

    /// Builds a tokenizer as the class that its files, or the `config.json` of its model, name reads them.
    fn from_published(files: Vec<(String, Vec<u8>)>, model: &Value, place: &str) -> Result<Self> {
        let published = published::read(files, model, place)?;
        let (mut json, inner, roles) = (published.json, published.inner, &published.roles);
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
        let (mut plain, told) = published::plain(&inner, &published.added, is_text, place)?;
        let settings = files::settings_of(&json);
        let files = files::complete(published.files, &special, &inner, roles, published.config);
        json["added_tokens"] = told;
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

    /// Rows that an embedding for this tokenizer needs: the largest id plus one.
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

    /// Ids of `text` without special tokens around them; special tokens that are spelled out in it are
    /// recognised.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        encode(&self.inner, text)
    }

    /// Ids of the texts of examples: as [`encode_corpus`](Self::encode_corpus), unless the tokenizer's files say
    /// that special tokens are recognised in them (`split_special_tokens: false`).
    pub fn encode_examples<T: AsRef<str> + Sync>(&self, texts: &[T]) -> Result<Vec<Vec<u32>>> {
        if self.splits_special_tokens {
            return self.encode_corpus(texts);
        }
        texts.par_iter().map(|text| self.encode(text.as_ref())).collect()
    }

    /// Ids of many texts that are nothing but content: a `<mask>` in them is six characters, not the mask
    /// token. Added tokens without such a role are tokens.
    pub fn encode_corpus<T: AsRef<str> + Sync>(&self, texts: &[T]) -> Result<Vec<Vec<u32>>> {
        texts.par_iter().map(|text| self.fast.encode(&self.plain, text.as_ref())).collect()
    }

    /// Ids of each word by itself, as transformers' `is_split_into_words` gives them. The tokenizer.json decides
    /// if each word is spelled as after a blank; see [`Self::for_words`].
    pub fn encode_words(&self, words: &[&str]) -> Result<Vec<Vec<u32>>> {
        self.encode_examples(words)
    }

    /// Like [`encode`](Self::encode), with the place of each token.
    pub fn encode_with_offsets(&self, text: &str) -> Result<Encoded> {
        let encoding = quietly(|| self.inner.encode(text, false)).map_err(cannot_encode)?;
        Ok(Encoded { ids: encoding.get_ids().to_vec(), offsets: encoding.get_offsets().to_vec() })
    }

    /// The text of `ids`.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        quietly(|| self.inner.decode(ids, skip_special))
            .map_err(|message| Problem::new(format!("cannot decode token ids: {message}")).into())
    }

    /// The token with this id as the vocabulary spells it.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The id of a token as the vocabulary spells it.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// SHA-256 of the canonical tokenizer.json (sorted keys, no padding, no truncation), in hexadecimal.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The longest sequence in tokens, special tokens included, that its `tokenizer_config.json` tells;
    /// `None` where it tells none, or that there is no limit.
    pub fn model_max_length(&self) -> Option<usize> {
        self.model_max_length
    }

    /// The same tokenizer, with this longest sequence in its files.
    #[must_use]
    pub fn with_model_max_length(self, length: usize) -> Self {
        let files = files::with_setting(self.files, "model_max_length", length);
        Self { files, model_max_length: (length > 0).then_some(length), ..self }
    }

    /// The same tokenizer, which takes control tokens that are spelled out in the text of an example for text,
    /// or for tokens.
    #[must_use]
    pub fn with_split_special_tokens(self, splits: bool) -> Self {
        // To transformers `true` means all special tokens; control tokens as text are what its absence means here.
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

    /// Returns true if models get the token types of [`framing`](Self::framing), as `model_input_names` says.
    pub fn gives_token_types(&self) -> bool {
        self.gives_token_types
    }

    /// Returns true if texts that are too long lose their beginning instead of their end (`truncation_side`).
    pub fn truncates_left(&self) -> bool {
        self.truncates_left
    }

    /// Returns true if a token has a role and is neither around texts nor in one, such as padding.
    pub fn is_unused_control(&self, id: u32) -> bool {
        let Framing { single, pair } = &self.framing;
        let rows = [single, pair].map(|frame| [frame.before, frame.between, frame.after]);
        let is_around = rows.iter().flatten().any(|row| row.ids().any(|other| other == id));
        let is_text = |token: String| {
            self.plain.get_added_tokens_decoder().values().any(|t| t.content == token && t.special)
        };
        !is_around
            && self.splits_special_tokens
            && self.special.unk != Some(id)
            && self.token(id).is_none_or(is_text)
    }

    /// Notes for the log: files and keys that were ignored, or overridden by others.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The tokenizer that spells each word, also the first one of a text, as after a blank,
    /// if its vocabulary has blanks before words.
    pub fn for_words(self) -> Result<Self> {
        let mut json: Value =
            serde_json::from_slice(load::content(&self.files, TOKENIZER_JSON).unwrap_or_default())?;
        if prefix::is_added(&json) != Some(false) {
            return Ok(self);
        }
        prefix::add(&mut json);
        let mut settings = files::settings_of(&json);
        // Classes that make their pipelines anew ask this key.
        settings.insert(prefix::KEY.into(), true.into());
        let files = files::with(self.files, TOKENIZER_JSON, &json);
        let new = Self::from_files(files::with_settings(files, settings), TOKENIZER_JSON)?;
        Ok(Self { notes: self.notes, ..new })
    }

    /// Returns true if `tokenizer_config.json` asks for the blank before the first word, which tokenizer.json may not
    /// know of.
    pub fn asks_for_words(&self) -> bool {
        files::setting(&self.files, prefix::KEY) == Some(true.into())
    }

    /// The files of a model that gets token types or none. Their `tokenizer_config.json` agrees with their
    /// `tokenizer.json`.
    pub fn files_of_model(&self, has_token_types: bool) -> Vec<(String, Vec<u8>)> {
        let mut settings = self.settings.clone();
        let has_token_types = has_token_types && self.gives_token_types;
        settings.insert(files::INPUT_NAMES.into(), files::input_names(has_token_types));
        settings.extend(files::class_of_both(&self.files));
        files::with_settings(self.files.clone(), settings)
    }

    /// Name and content of each file: what `AutoTokenizer.from_pretrained` of a folder with them needs.
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
