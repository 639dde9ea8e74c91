//! Finds the special tokens by their role: what the tokenizer's own files say, else the usual names of the
//! families.

use anyhow::Result;
use serde_json::Value;
use tokenizers::models::ModelWrapper;

use crate::error::Problem;
use crate::tokenizer::load;
use crate::tokenizer::load::NamedFile;

/// Ids of the special tokens by role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Starts a segment: `<s>`, `[CLS]`.
    pub cls: u32,
    /// Ends a segment: `</s>`, `[SEP]`.
    pub sep: u32,
    /// Fills a place that is not read: `<pad>`, `[PAD]`.
    pub pad: u32,
    /// Stands for a token to predict: `<mask>`, `[MASK]`. Fine-tuning needs none.
    pub mask: Option<u32>,
    /// Stands for what the vocabulary cannot spell; byte-level vocabularies never use it.
    pub unk: Option<u32>,
}

impl SpecialTokens {
    /// The mask token, which masked language modelling cannot do without.
    pub fn mask(&self) -> Result<u32> {
        let missing = || {
            Problem::new("the tokenizer has no mask token")
                .hint("name one as `mask_token` in its tokenizer_config.json")
        };
        Ok(self.mask.ok_or_else(missing)?)
    }
}

/// One role: its keys in the tokenizer's files, then the usual names.
struct Role {
    keys: &'static [&'static str],
    names: &'static [&'static str],
}

const CLS: Role = Role { keys: &["cls_token", "bos_token"], names: &["<s>", "[CLS]", "<cls>"] };
const SEP: Role = Role { keys: &["sep_token", "eos_token"], names: &["</s>", "[SEP]", "<sep>"] };
const PAD: Role = Role { keys: &["pad_token"], names: &["<pad>", "[PAD]"] };
const MASK: Role = Role { keys: &["mask_token"], names: &["<mask>", "[MASK]"] };
const UNK: Role = Role { keys: &["unk_token"], names: &["<unk>", "[UNK]"] };

/// The special tokens of a tokenizer; a missing start, end or padding token is an error that says what was
/// looked for.
pub(super) fn find(inner: &tokenizers::Tokenizer, files: &[NamedFile], place: &str) -> Result<SpecialTokens> {
    let settings: Vec<Value> = ["special_tokens_map.json", "tokenizer_config.json"]
        .iter()
        .filter_map(|name| load::content(files, name))
        .filter_map(|bytes| serde_json::from_slice(bytes).ok())
        .collect();
    let named = |role: &Role| {
        let mut names =
            role.keys.iter().flat_map(|key| settings.iter().filter_map(|value| token_name(&value[*key])));
        names.find_map(|name| inner.token_to_id(name))
    };
    let usual = |role: &Role| role.names.iter().find_map(|name| inner.token_to_id(name));
    let find = |role: &Role| named(role).or_else(|| usual(role));
    // MPNet's vocabulary has `<unk>`, too, which its WordPiece does not use.
    let of_model = || match inner.get_model() {
        ModelWrapper::WordPiece(model) => inner.token_to_id(&model.unk_token),
        _ => None,
    };
    let need = |role: &Role| {
        find(role).ok_or_else(|| {
            Problem::new(format!("the tokenizer has none of the tokens `{}`", role.names.join("`, `")))
                .at(place)
                .hint(format!(
                    "name the one it has as `{}` in the tokenizer_config.json beside it",
                    role.keys[0]
                ))
        })
    };
    Ok(SpecialTokens {
        cls: need(&CLS)?,
        sep: need(&SEP)?,
        pad: need(&PAD)?,
        mask: find(&MASK),
        unk: named(&UNK).or_else(of_model).or_else(|| usual(&UNK)),
    })
}

/// Ids of the roles and of all added tokens that are marked special, sorted.
pub(super) fn all_ids(inner: &tokenizers::Tokenizer, special: &SpecialTokens) -> Vec<u32> {
    let marked = inner.get_added_tokens_decoder();
    let mut ids: Vec<u32> = marked.iter().filter(|(_, token)| token.special).map(|(id, _)| *id).collect();
    ids.extend([special.cls, special.sep, special.pad]);
    ids.extend(special.mask);
    ids.extend(special.unk);
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// A token is written as `"<s>"` or as `{"content": "<s>", ...}`.
fn token_name(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value["content"].as_str())
}
