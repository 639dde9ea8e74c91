//! The pipelines that the classes of transformers 5 build from a vocabulary: normalizer, pre-tokenizer,
//! template and the switches of the model, as parts of a tokenizer.json.

use serde_json::{Value, json};
use tokenizers::PostProcessorWrapper;

use crate::tokenizer::framing::{template_entry, template_text, template_token};
use crate::tokenizer::published::class::{Class, Kind};
use crate::tokenizer::published::settings::Settings;
use crate::tokenizer::published::tokens::Tokens;
use base::error::Problem;

/// The parts that a class builds, except the template, which is built when the ids of its tokens are known.
pub(super) struct Pipeline {
    pub(super) normalizer: Value,
    pub(super) pre_tokenizer: Value,
    /// Switches of the model.
    pub(super) model: Vec<(&'static str, Value)>,
}

/// Builds the parts of `class` with these settings; `json` is the tokenizer.json with the vocabulary.
pub(super) fn pipeline(
    class: Class,
    settings: Settings<'_>,
    tokens: &Tokens,
    json: &Value,
    place: &str,
) -> Result<Pipeline, Problem> {
    let prefix_space = match class {
        Class::Albert | Class::Camembert | Class::DebertaV2 | Class::XlmRoberta => {
            settings.flag("add_prefix_space", true)?
        }
        Class::Deberta | Class::Gpt2 | Class::Roberta => settings.flag("add_prefix_space", false)?,
        _ => false,
    };
    Ok(Pipeline {
        normalizer: normalizer(class, settings, &json["normalizer"])?,
        pre_tokenizer: pre_tokenizer(class, settings, prefix_space)?,
        model: model(class, settings, tokens, &json["model"], place)?,
    })
}

fn normalizer(class: Class, settings: Settings<'_>, old: &Value) -> Result<Value, Problem> {
    Ok(match class {
        Class::Bert | Class::DistilBert | Class::Mpnet => json!({
            "type": "BertNormalizer", "clean_text": true,
            "handle_chinese_chars": settings.flag("tokenize_chinese_chars", true)?,
            "strip_accents": settings.open_flag("strip_accents")?,
            "lowercase": settings.flag("do_lower_case", true)?,
        }),
        Class::Herbert => json!({
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": false,
            "lowercase": false,
        }),
        Class::Albert => {
            let quotes = ["``", "''"];
            let mut parts = quotes
                .map(|old| json!({"type": "Replace", "pattern": {"String": old}, "content": "\""}))
                .to_vec();
            if !settings.flag("keep_accents", false)? {
                parts.extend([json!({"type": "NFKD"}), json!({"type": "StripAccents"})]);
            }
            if settings.flag("do_lower_case", true)? {
                parts.push(json!({"type": "Lowercase"}));
            }
            parts.extend(precompiled(old));
            json!({"type": "Sequence", "normalizers": parts})
        }
        Class::Camembert | Class::XlmRoberta => precompiled(old).unwrap_or_default(),
        Class::DebertaV2 => {
            let mut parts = Vec::new();
            if settings.flag("do_lower_case", false)? {
                parts.push(json!({"type": "Lowercase"}));
            }
            parts.extend([
                json!({"type": "Replace", "pattern": {"Regex": "\\s{2,}|[\\n\\r\\t]"}, "content": " "}),
                json!({"type": "NFC"}),
                json!({"type": "Strip", "strip_left": false, "strip_right": true}),
            ]);
            json!({"type": "Sequence", "normalizers": parts})
        }
        Class::General | Class::Deberta | Class::Gpt2 | Class::Roberta => Value::Null,
    })
}

/// SentencePiece's table of characters, if the normalizer or one of the parts of a sequence is such a table.
fn precompiled(normalizer: &Value) -> Option<Value> {
    let parts = normalizer["normalizers"].as_array().map_or(std::slice::from_ref(normalizer), Vec::as_slice);
    parts.iter().find(|part| part["type"] == "Precompiled").cloned()
}

fn pre_tokenizer(class: Class, settings: Settings<'_>, prefix_space: bool) -> Result<Value, Problem> {
    Ok(match class {
        Class::Bert | Class::DistilBert | Class::Mpnet | Class::Herbert => {
            json!({"type": "BertPreTokenizer"})
        }
        Class::Deberta | Class::Gpt2 | Class::Roberta => {
            json!({"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": true, "use_regex": true})
        }
        Class::Albert | Class::Camembert | Class::XlmRoberta => {
            let words = metaspace(if prefix_space { "always" } else { "never" });
            json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, words]})
        }
        Class::DebertaV2 => {
            let mut parts = Vec::new();
            if settings.flag("split_by_punct", false)? {
                parts.push(json!({"type": "Punctuation", "behavior": "Isolated"}));
            }
            parts.push(metaspace(if prefix_space { "always" } else { "first" }));
            json!({"type": "Sequence", "pretokenizers": parts})
        }
        Class::General => Value::Null,
    })
}

fn metaspace(prepend_scheme: &str) -> Value {
    json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": prepend_scheme, "split": true})
}

fn model(
    class: Class,
    settings: Settings<'_>,
    tokens: &Tokens,
    old: &Value,
    place: &str,
) -> Result<Vec<(&'static str, Value)>, Problem> {
    let unk = tokens.role("unk_token").unwrap_or_default();
    Ok(match class.kind() {
        None => Vec::new(),
        Some(Kind::WordPiece) => vec![
            ("unk_token", unk.into()),
            ("continuing_subword_prefix", "##".into()),
            ("max_input_chars_per_word", 100.into()),
        ],
        Some(Kind::Bpe) => {
            let is_herbert = class == Class::Herbert;
            vec![
                ("dropout", Value::Null),
                ("unk_token", if is_herbert { unk.into() } else { Value::Null }),
                ("continuing_subword_prefix", if is_herbert { Value::Null } else { "".into() }),
                ("end_of_word_suffix", if is_herbert { "</w>" } else { "" }.into()),
                ("fuse_unk", false.into()),
                ("byte_fallback", false.into()),
                ("ignore_merges", false.into()),
            ]
        }
        Some(Kind::Unigram) => {
            let pieces = old["vocab"].as_array().ok_or_else(|| {
                let message = format!(
                    "`tokenizer_class` {} wants the pieces and scores of a Unigram model",
                    class.name()
                );
                Problem::new(message).at(place).hint("is the class that of its tokenizer.json?")
            })?;
            let id = match class {
                Class::Albert => 1,
                Class::Camembert => pieces.iter().position(|piece| piece[0] == unk).unwrap_or(0) as u64,
                Class::DebertaV2 => {
                    let own =
                        pieces.iter().position(|piece| piece[0] == unk && piece[1].as_f64() == Some(0.0));
                    own.map_or_else(|| settings.number("unk_id", 1), |place| Ok(place as u64))?
                }
                _ => 3,
            };
            vec![("unk_id", id.into()), ("byte_fallback", false.into())]
        }
    })
}

/// Returns true if two values of a model's switch have the same meaning: a missing value means null, false,
/// or the default.
pub(super) fn is_same_switch(key: &str, old: &Value, new: &Value) -> bool {
    let default = match key {
        "max_input_chars_per_word" => json!(100),
        "continuing_subword_prefix" if *new == "##" => json!("##"),
        _ => Value::Null,
    };
    let [old, new] = [old, new].map(|value| match value {
        Value::Null => default.clone(),
        Value::Bool(false) => Value::Null,
        Value::String(text) if text.is_empty() => Value::Null,
        other => other.clone(),
    });
    old == new
}

/// Builds the template of a class; `id` returns the ids of tokens. `None` if the existing template stays.
pub(super) fn post_processor(
    class: Class,
    settings: Settings<'_>,
    tokens: &Tokens,
    id: impl Fn(&str) -> Option<u32>,
    place: &str,
) -> Result<Option<(PostProcessorWrapper, Value)>, Problem> {
    if matches!(class, Class::General | Class::Gpt2) {
        return Ok(None);
    }
    let roles = match class {
        Class::Camembert | Class::XlmRoberta => ["bos_token", "eos_token"],
        _ => ["cls_token", "sep_token"],
    };
    let cls = required_role(tokens, roles[0], class, place)?;
    let sep = required_role(tokens, roles[1], class, place)?;
    let cls_id = id(cls);
    let sep_id = id(sep);
    let [sep_pair, cls_pair] = [json!([sep, sep_id]), json!([cls, cls_id])];
    let json = match class {
        Class::General | Class::Gpt2 => Value::Null,
        Class::Roberta => {
            let prefix_space = settings.flag("add_prefix_space", false)?;
            let trim = settings.flag("trim_offsets", true)?;
            json!({
                "type": "RobertaProcessing",
                "sep": sep_pair,
                "cls": cls_pair,
                "trim_offsets": trim,
                "add_prefix_space": prefix_space,
            })
        }
        Class::Mpnet => {
            json!({
                "type": "RobertaProcessing",
                "sep": sep_pair,
                "cls": cls_pair,
                "trim_offsets": true,
                "add_prefix_space": false,
            })
        }
        // The class assumes these ids.
        Class::Herbert => json!({"type": "BertProcessing", "sep": [sep, 2], "cls": [cls, 0]}),
        Class::Bert | Class::DistilBert | Class::DebertaV2 | Class::Albert => {
            template([cls, sep], [cls_id, sep_id], false, 1)
        }
        Class::Deberta | Class::Camembert | Class::XlmRoberta => {
            template([cls, sep], [cls_id, sep_id], true, 0)
        }
    };
    match serde_json::from_value(json.clone()) {
        Ok(processor) => Ok(Some((processor, json))),
        Err(error) => {
            let message = format!("no template with `{cls}` and `{sep}` can be made: {error}");
            Err(Problem::new(message).at(place))
        }
    }
}

/// The token of a role; an error if the files set it to null.
fn required_role<'a>(tokens: &'a Tokens, role: &str, class: Class, place: &str) -> Result<&'a str, Problem> {
    tokens.role(role).ok_or_else(|| {
        let message = format!("`{role}` of tokenizer_config.json is null, and {} needs one", class.name());
        Problem::new(message).at(place)
    })
}

fn template([cls, sep]: [&str; 2], ids: [Option<u32>; 2], double: bool, second: u32) -> Value {
    let single = vec![template_token(cls, 0), template_text("A", 0), template_token(sep, 0)];
    let mut pair = single.clone();
    if double {
        pair.push(template_token(sep, 0));
    }
    pair.extend([template_text("B", second), template_token(sep, second)]);
    json!({
        "type": "TemplateProcessing", "single": single, "pair": pair,
        "special_tokens": {cls: template_entry(cls, ids[0]), sep: template_entry(sep, ids[1])},
    })
}
