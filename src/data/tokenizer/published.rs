//! Reads the tokenizer of a folder as transformers 5 does: its class determines which parts of tokenizer.json
//! are used, and the other files change normalizer, template and added tokens.
//!
//! The result is one tokenizer.json, so that later readers and written folders agree.

mod class;
mod keys;
mod pipeline;
mod settings;
mod tokens;
mod vocabulary;
mod written;

use anyhow::Result;
use serde_json::{Map, Value};
use tokenizers::{AddedToken, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper};

use crate::tokenizer::load::{NamedFile, TOKENIZER_JSON};
use crate::tokenizer::{check, load};
use base::error::Problem;
use base::quietly::quietly;
use class::{Class, Kind};
use pipeline::is_same_switch;
use settings::{Settings, TOKENIZER_CONFIG, object};
use tokens::{ROLES, Tokens, added_tokens, added_tokens_json};
use written::Corrections;

/// A tokenizer as defined by all files of its folder.
pub(super) struct Published {
    /// The complete tokenizer.json, without padding and truncation.
    pub(super) json: Value,
    /// The tokenizer built from `json`.
    pub(super) inner: tokenizers::Tokenizer,
    /// Added tokens with their ids, sorted.
    pub(super) added: Vec<(u32, AddedToken)>,
    /// The files to write, consistent with each other.
    pub(super) files: Vec<NamedFile>,
    /// Settings for a tokenizer_config.json, if there is none.
    pub(super) config: Map<String, Value>,
    /// Special tokens by role, as named in the files.
    pub(super) roles: Vec<(&'static str, String)>,
    /// True if models get token types.
    pub(super) gives_token_types: bool,
    /// True if texts that are too long lose their beginning.
    pub(super) truncates_left: bool,
    /// The longest sequence in tokens.
    pub(super) model_max_length: Option<usize>,
    /// True if special tokens in the text of an example are encoded as text; `None` if the files do not
    /// specify it.
    pub(super) split_special_tokens: Option<bool>,
    /// Notes for the log: what was ignored or changed.
    pub(super) notes: Vec<String>,
}

/// Reads a tokenizer from its files; `model` is the config.json in the same folder, or null.
pub(super) fn read(files: Vec<NamedFile>, model: &Value, place: &str) -> Result<Published> {
    let keys = object(&files, TOKENIZER_CONFIG, place)?;
    let table = Value::Object(keys.clone());
    let mut notes: Vec<String> = keys::check(&table, place)?.into_iter().collect();
    let named = Class::choose(&table, model, place)?;
    let is_whole = load::content(&files, TOKENIZER_JSON).is_some();
    let (files, class) = vocabulary::complete(files, named, place)?;
    let (mut json, kept) = load::parse_whole(&files, place)?;
    check::check(&json, place)?;
    let settings = Settings::new(&keys, place);
    let in_file = added_tokens(&json["added_tokens"], place)?;
    let tokens = Tokens::read(class, &keys, &files, &in_file, place)?;
    let mut changed: Vec<&str> = turn_off_dropout(&mut json, &mut notes).into_iter().collect();
    let mut list = Value::Null;
    let mut inner = if class == Class::General {
        load::build(&json, place)?
    } else {
        list = std::mem::replace(&mut json["added_tokens"], Value::Array(Vec::new()));
        changed.extend(apply(class, settings, &tokens, &mut json, place)?);
        load::build(&json, place)?
    };
    let to_add = tokens.to_add(class, if class == Class::General { &in_file } else { &[] });
    require(class, &tokens, is_whole, &inner, place)?;
    if !to_add.is_empty() {
        quietly(|| inner.add_tokens(to_add))
            .map_err(|message| Problem::new(format!("cannot add its tokens: {message}")).at(place))?;
    }
    let added = sorted(&inner);
    if !is_same_list(&added, &in_file) {
        json["added_tokens"] = added_tokens_json(&added);
        changed.push("added_tokens");
    } else if class != Class::General {
        json["added_tokens"] = list;
    }
    let made = pipeline::post_processor(class, settings, &tokens, |token| inner.token_to_id(token), place)?;
    if let Some((processor, part)) = made {
        if !is_same::<PostProcessorWrapper>(&json["post_processor"], &part) {
            json["post_processor"] = part;
            changed.push("post_processor");
        }
        inner.with_post_processor(Some(processor));
    }
    let truncates_left = settings.truncates_left(kept[1]["direction"] == "Left")?;
    let mut keys = keys.clone();
    if truncates_left {
        keys.insert("truncation_side".to_string(), "left".into());
    }
    // A tokenizer without a model has no class of a model: the template determines the token types.
    let is_open = class == Class::General && (model.is_null() || is_of_earlier_version(model));
    let absent = if is_open { has_types(&json["post_processor"]) } else { class.gives_token_types() };
    let gives_token_types = settings.gives_token_types(absent)?;
    let roles: Vec<(&'static str, String)> =
        ROLES.into_iter().filter_map(|role| Some((role, tokens.role(role)?.to_string()))).collect();
    if is_whole {
        notes.extend(written::note_changes(class, &changed));
    } else if class.kind() == Some(Kind::WordPiece) && !keys.contains_key("do_lower_case") {
        notes.extend(vocabulary::note_capitals(&json["model"]));
    }
    let config = written::config(class, &json, gives_token_types, truncates_left);
    let is_same_file = is_whole && changed.is_empty();
    let corrections = Corrections { class, json: (!is_same_file).then_some(&json), kept, keys };
    let files = written::correct(files, corrections);
    Ok(Published {
        inner,
        added,
        files,
        config,
        roles,
        gives_token_types,
        truncates_left,
        model_max_length: settings.model_max_length()?,
        split_special_tokens: settings.open_flag("split_special_tokens")?,
        notes,
        json,
    })
}

/// Returns an error if a vocabulary lacks special tokens that its class needs.
fn require(
    class: Class,
    tokens: &Tokens,
    is_whole: bool,
    inner: &tokenizers::Tokenizer,
    place: &str,
) -> Result<(), Problem> {
    let roles: &[&str] = match (class.kind(), class, is_whole) {
        (Some(Kind::WordPiece), _, false) => &["unk_token", "cls_token", "sep_token"],
        (Some(Kind::WordPiece), _, true) => &["unk_token"],
        (_, Class::Albert, _) | (Some(Kind::Bpe), _, false) if class != Class::Gpt2 => {
            &["cls_token", "sep_token"]
        }
        _ => &[],
    };
    let names: Vec<&str> = roles.iter().map(|role| tokens.role(role).unwrap_or_default()).collect();
    vocabulary::require(
        &names,
        |name| inner.token_to_id(name).is_some() || (!is_whole && tokens.adds(name)),
        place,
    )
}

/// Returns true if an earlier version of this program wrote this config.json: it names a head, and no version
/// of transformers. Earlier versions did not list the inputs of the model, and gave it the token types of the
/// template.
fn is_of_earlier_version(model: &Value) -> bool {
    model["architectures"].is_array() && model["transformers_version"].is_null()
}

/// Turns off dropout of merges or pieces, with which ids would differ each time; returns "model" if anything
/// changed.
fn turn_off_dropout(json: &mut Value, notes: &mut Vec<String>) -> Option<&'static str> {
    let model = json["model"].as_object_mut()?;
    let mut is_changed = false;
    for key in ["dropout", "alpha"] {
        if let Some(value) =
            model.get_mut(key).filter(|value| value.as_f64().is_some_and(|chance| chance != 0.0))
        {
            notes.push(format!(
                "`model.{key}` of tokenizer.json is {value}: it is off, so that ids are always the same"
            ));
            *value = Value::Null;
            is_changed = true;
        }
    }
    is_changed.then_some("model")
}

/// Puts the parts that `class` builds into `json`, except the template, and returns the names of those that
/// changed.
fn apply(
    class: Class,
    settings: Settings<'_>,
    tokens: &Tokens,
    json: &mut Value,
    place: &str,
) -> Result<Vec<&'static str>, Problem> {
    let made = pipeline::pipeline(class, settings, tokens, json, place)?;
    let mut changed = vocabulary::as_kind(class, &mut json["model"], place)?;
    for (key, new) in made.model {
        let old = &json["model"][key];
        let is_other = !is_same_switch(key, old, &new);
        // The crate requires all switches of WordPiece.
        if is_other || (old.is_null() && class.kind() == Some(Kind::WordPiece)) {
            json["model"][key] = new;
        }
        changed |= is_other;
    }
    let mut changed = Vec::from_iter(changed.then_some("model"));
    if !is_same::<NormalizerWrapper>(&json["normalizer"], &made.normalizer) {
        json["normalizer"] = made.normalizer;
        changed.push("normalizer");
    }
    if !is_same::<PreTokenizerWrapper>(&json["pre_tokenizer"], &made.pre_tokenizer) {
        json["pre_tokenizer"] = made.pre_tokenizer;
        changed.push("pre_tokenizer");
    }
    Ok(changed)
}

/// Returns true if two parts of a tokenizer.json are equivalent, even if they omit different defaults.
fn is_same<T: serde::de::DeserializeOwned + serde::Serialize>(old: &Value, new: &Value) -> bool {
    old == new || (canonical::<T>(old).is_some() && canonical::<T>(old) == canonical::<T>(new))
}

/// A part of a tokenizer.json with all its defaults; `None` if the crate cannot read it.
fn canonical<T: serde::de::DeserializeOwned + serde::Serialize>(part: &Value) -> Option<Value> {
    let read = quietly(|| serde_json::from_value::<Option<T>>(part.clone()));
    read.ok().and_then(|part| serde_json::to_value(part).ok())
}

/// Returns true if a template has a token type that is not 0.
fn has_types(part: &Value) -> bool {
    match part {
        Value::Object(fields) => {
            fields.get("type_id").is_some_and(|id| *id != 0) || fields.values().any(has_types)
        }
        Value::Array(parts) => parts.iter().any(has_types),
        _ => false,
    }
}

fn sorted(inner: &tokenizers::Tokenizer) -> Vec<(u32, AddedToken)> {
    let mut tokens: Vec<(u32, AddedToken)> =
        inner.get_added_tokens_decoder().iter().map(|(id, token)| (*id, token.clone())).collect();
    tokens.sort_by_key(|(id, _)| *id);
    tokens
}

fn is_same_list(new: &[(u32, AddedToken)], old: &[(u32, AddedToken)]) -> bool {
    let mut old = old.to_vec();
    old.sort_by_key(|(id, _)| *id);
    new == old
}

/// Returns `inner` for texts in which the tokens selected by `is_text` are text, and the list of added tokens
/// for it: the crate then treats special tokens as text.
pub(super) fn plain(
    inner: &tokenizers::Tokenizer,
    added: &[(u32, AddedToken)],
    is_text: impl Fn(&AddedToken) -> bool,
    place: &str,
) -> Result<(tokenizers::Tokenizer, Value), Problem> {
    let mut plain = inner.clone();
    let marked: Vec<(u32, AddedToken)> =
        added.iter().map(|(id, token)| (*id, token.clone().special(is_text(token)))).collect();
    if marked != added {
        plain.with_added_vocabulary(tokenizers::AddedVocabulary::new());
        quietly(|| plain.add_tokens(marked.iter().map(|(_, token)| token.clone()).collect::<Vec<_>>()))
            .map_err(|message| Problem::new(format!("cannot add its tokens: {message}")).at(place))?;
    }
    plain.set_encode_special_tokens(true);
    Ok((plain, added_tokens_json(&marked)))
}
