//! Decides which tokenizers may encode a text in chunks, and where the text may be cut, from the components
//! of a tokenizer.json. A text is never cut if any component is unknown here.
//!
//! A cut is made before a blank. It is correct if no component looks across it: the normalizer works on
//! single characters or on Unicode decompositions, which a blank separates (its combining class is 0 and
//! nothing composes with it, UAX #15); the pre-tokenizer ends a word before every blank; the model processes
//! words.

use serde_json::Value;

use crate::tokenizer::prefix;

/// The places at which a text may be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cuts {
    /// Cut before a line feed as well, not only before a space.
    pub(super) at_line_feeds: bool,
    /// Cut only after a printable ASCII character or a Latin letter: a normalizer may remove any other
    /// character, and the white space on both sides of it would be joined.
    pub(super) after_plain: bool,
}

/// The cuts of the tokenizer that `json` describes; `None` if it must encode each text as a whole.
pub(super) fn cuts(json: &Value) -> Option<Cuts> {
    // GPT-2's splitting into words does not keep added tokens in one word.
    let may_hold = has_type(&json["pre_tokenizer"], &["BertPreTokenizer", "WhitespaceSplit", "Whitespace"]);
    let tokens_are_safe = match &json["added_tokens"] {
        Value::Null => true,
        tokens => tokens
            .as_array()?
            .iter()
            .all(|token| token["special"].as_bool() == Some(true) || (may_hold && is_within_word(token))),
    };
    let is_safe = tokens_are_safe && keeps_ids(&json["post_processor"]) && sees_words(&json["model"]);
    if is_safe { text_cuts(json) } else { None }
}

/// Returns true if a token is found within one chunk, independent of the text around it.
fn is_within_word(token: &Value) -> bool {
    let content = token["content"].as_str().unwrap_or_default();
    content.bytes().all(|byte| byte.is_ascii_graphic()) && token["rstrip"].as_bool() == Some(false)
}

fn has_type(part: &Value, names: &[&str]) -> bool {
    part["type"].as_str().is_some_and(|name| names.contains(&name))
}

/// The cuts that normalizer and pre-tokenizer allow, independent of the model.
pub(super) fn text_cuts(json: &Value) -> Option<Cuts> {
    let normalizers = flatten(&json["normalizer"], "normalizers")?;
    let pre_tokenizers = flatten(&json["pre_tokenizer"], "pretokenizers")?;
    if !normalizers.iter().all(|part| has_type(part, &NORMALIZERS)) {
        return None;
    }
    // BERT's normalizer adds spaces.
    let bert = normalizers.iter().any(|part| part["type"].as_str() == Some("BertNormalizer"));
    let (part, at_line_feeds) = match pre_tokenizers[..] {
        [part] => (part, part["type"].as_str() != Some("Metaspace")),
        // The steps before the word step have the same effect wherever the line is in the text.
        [.., part] if prefix::spells_lines(&pre_tokenizers) => (part, true),
        _ => return None,
    };
    match part["type"].as_str()? {
        // These drop white space, so that its amount does not matter.
        "BertPreTokenizer" | "Whitespace" | "WhitespaceSplit" => {
            Some(Cuts { at_line_feeds, after_plain: false })
        }
        "ByteLevel" => {
            let usual = part["add_prefix_space"].as_bool() == Some(false)
                && part["use_regex"].as_bool() != Some(false);
            (usual && !bert).then_some(Cuts { at_line_feeds, after_plain: !normalizers.is_empty() })
        }
        "Metaspace" => {
            let usual = part["split"].as_bool() != Some(false);
            (usual && !bert).then_some(Cuts { at_line_feeds, after_plain: true })
        }
        _ => None,
    }
}

/// Returns true if the pipeline is that of our own byte-level code: no normalizer, GPT-2's words.
pub(super) fn is_byte_level(json: &Value) -> bool {
    json["normalizer"].is_null() && json["pre_tokenizer"]["type"].as_str() == Some("ByteLevel")
}

/// Returns true if the pipeline is that of our own unigram code: lines are separated, and a `▁` is put before each
/// word.
pub(super) fn is_words_of_unigram(json: &Value) -> bool {
    let steps = flatten(&json["pre_tokenizer"], "pretokenizers").unwrap_or_default();
    prefix::spells_lines(&steps) && prefix::is_added(json) == Some(true)
}

/// Returns true if the pipeline is that of our own WordPiece code: BERT's words, and no added tokens in them.
pub(super) fn is_words_of_bert(json: &Value) -> bool {
    let added = json["added_tokens"].as_array().into_iter().flatten();
    json["pre_tokenizer"]["type"].as_str() == Some("BertPreTokenizer")
        && added.into_iter().all(|token| token["special"].as_bool() == Some(true))
}

const NORMALIZERS: [&str; 7] = ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "BertNormalizer"];

/// The components of a sequence, of one component, or of none.
fn flatten<'a>(part: &'a Value, key: &str) -> Option<Vec<&'a Value>> {
    match part["type"].as_str() {
        None => part.is_null().then(Vec::new),
        Some("Sequence") => {
            Some(part[key].as_array()?.iter().map(|p| flatten(p, key)).collect::<Option<Vec<_>>>()?.concat())
        }
        Some(_) => Some(vec![part]),
    }
}

/// Returns true if a post-processor does not change the ids of a single text when no special tokens are
/// requested.
fn keeps_ids(processor: &Value) -> bool {
    match processor["type"].as_str() {
        None => processor.is_null(),
        Some("RobertaProcessing" | "BertProcessing" | "ByteLevel") => true,
        Some("TemplateProcessing") => {
            let pieces = processor["single"].as_array().into_iter().flatten();
            let sequences: Vec<&Value> = pieces.filter_map(|piece| piece.get("Sequence")).collect();
            matches!(sequences[..], [only] if only["id"].as_str() == Some("A"))
        }
        Some("Sequence") => processor["processors"].as_array().is_some_and(|all| all.iter().all(keeps_ids)),
        Some(_) => false,
    }
}

/// Returns true if a model always returns the same ids for the same word.
fn sees_words(model: &Value) -> bool {
    matches!(model["type"].as_str(), Some("BPE" | "WordPiece" | "WordLevel" | "Unigram"))
        && ["dropout", "alpha"].iter().all(|key| model[*key].is_null() || model[*key].as_f64() == Some(0.0))
}
