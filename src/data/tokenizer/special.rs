//! Finds the special tokens by their role: those named in the tokenizer's own files, otherwise the usual
//! names of the families.

use anyhow::Result;
use tokenizers::AddedToken;
use tokenizers::models::ModelWrapper;

use crate::tokenizer::framing::Framing;
use base::error::Problem;

/// Ids of the special tokens by role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Start of a segment: `<s>`, `[CLS]`.
    pub cls: u32,
    /// End of a segment: `</s>`, `[SEP]`.
    pub sep: u32,
    /// Filler of unused places: `<pad>`, `[PAD]`.
    pub pad: u32,
    /// Replaces a token to predict: `<mask>`, `[MASK]`. Fine-tuning does not need it.
    pub mask: Option<u32>,
    /// Replaces text that the vocabulary cannot spell; byte-level vocabularies never use it.
    pub unk: Option<u32>,
}

impl SpecialTokens {
    /// The mask token, which masked language modelling requires.
    pub fn mask(&self) -> Result<u32> {
        Ok(self.mask.ok_or_else(|| {
            Problem::new("the tokenizer has no mask token")
                .hint("name one as `mask_token` in its tokenizer_config.json")
        })?)
    }
}

/// One role: its keys in the tokenizer's files, and the usual names of its token.
struct Role {
    keys: &'static [&'static str],
    names: &'static [&'static str],
}

const CLS: Role = Role { keys: &["cls_token", "bos_token"], names: &["<s>", "[CLS]", "<cls>"] };
const SEP: Role = Role { keys: &["sep_token", "eos_token"], names: &["</s>", "[SEP]", "<sep>"] };
const PAD: Role = Role { keys: &["pad_token"], names: &["<pad>", "[PAD]"] };
const MASK: Role = Role { keys: &["mask_token"], names: &["<mask>", "[MASK]"] };
const UNK: Role = Role { keys: &["unk_token"], names: &["<unk>", "[UNK]"] };

/// The special tokens of a tokenizer: those that its files name in `roles`, otherwise those around a text,
/// otherwise the usual names. A missing start, end or padding token is an error that lists the names tried.
pub(super) fn find(
    inner: &tokenizers::Tokenizer,
    roles: &[(&'static str, String)],
    framing: &Framing,
    place: &str,
) -> Result<SpecialTokens> {
    // MPNet's vocabulary also has `<unk>`, which its WordPiece does not use.
    let unk_of_model = match inner.get_model() {
        ModelWrapper::WordPiece(model) => inner.token_to_id(&model.unk_token),
        _ => None,
    };
    let single = &framing.single;
    let find =
        |role: &Role, other: Option<u32>| named(inner, roles, role).or(other).or_else(|| usual(inner, role));
    Ok(SpecialTokens {
        cls: find(&CLS, single.before.ids().next()).ok_or_else(|| missing(&CLS, place))?,
        sep: find(&SEP, single.after.ids().next_back()).ok_or_else(|| missing(&SEP, place))?,
        pad: find(&PAD, None).ok_or_else(|| missing(&PAD, place))?,
        mask: find(&MASK, None),
        unk: find(&UNK, unk_of_model),
    })
}

/// The token that the files of a tokenizer name in `roles` for a role.
fn named(inner: &tokenizers::Tokenizer, roles: &[(&'static str, String)], role: &Role) -> Option<u32> {
    let names = role.keys.iter().flat_map(|key| roles.iter().filter(move |(name, _)| name == key));
    names.map(|(_, content)| content).find_map(|name| inner.token_to_id(name))
}

/// The token with a usual name of a role. An added token with one of these names is more likely meant than an
/// entry of the vocabulary.
fn usual(inner: &tokenizers::Tokenizer, role: &Role) -> Option<u32> {
    let added = inner.get_added_vocabulary().get_vocab();
    let of_added = role.names.iter().find_map(|name| added.get(*name).copied());
    of_added.or_else(|| role.names.iter().find_map(|name| inner.token_to_id(name)))
}

/// The error for a role without a token.
fn missing(role: &Role, place: &str) -> Problem {
    Problem::new(format!("the tokenizer has none of the tokens `{}`", role.names.join("`, `")))
        .at(place)
        .hint(format!("name the one it has as `{}` in the tokenizer_config.json beside it", role.keys[0]))
}

/// Returns true if a token is a control token: one with a role, which is text if it occurs in a text.
pub(super) fn is_control(
    inner: &tokenizers::Tokenizer,
    roles: &[(&'static str, String)],
    special: &SpecialTokens,
    token: &AddedToken,
) -> bool {
    let SpecialTokens { cls, sep, pad, mask, unk } = *special;
    let id = inner.token_to_id(&token.content);
    [Some(cls), Some(sep), Some(pad), mask, unk].iter().any(|role| role.is_some() && *role == id)
        || roles.iter().any(|(_, content)| *content == token.content)
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
