//! Reads the files of an existing tokenizer and passes its JSON to the `tokenizers` crate safely.
//!
//! A `tokenizer.json` from outside is not trusted: sizes are limited, and the parts that made the crate abort
//! the process are dropped.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

use crate::tokenizer::{TOKENIZER_BYTES_MAX, check};
use base::error::Problem;
use base::fs;
use base::quietly::quietly;
use base::sealed::verify_sealed;

/// Files that belong to a tokenizer in addition to `tokenizer.json`.
pub const COMPANIONS: [&str; 9] = [
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "sentencepiece.bpe.model",
    "spiece.model",
    "spm.model",
];

/// The file with a whole tokenizer.
pub const TOKENIZER_JSON: &str = "tokenizer.json";
/// The model's file, which may name the class of the tokenizer.
const MODEL_CONFIG: &str = "config.json";

/// Vocabularies of old folders: one entry per line; a table of ids, and merges.
pub(super) const ENTRIES: &str = "vocab.txt";
pub(super) const IDS: &str = "vocab.json";
pub(super) const MERGES: &str = "merges.txt";

/// Name and content of a file.
pub(super) type NamedFile = (String, Vec<u8>);

/// The files of a tokenizer, its path, and the `config.json` of the model in the same folder.
pub(super) struct Found {
    pub(super) place: PathBuf,
    pub(super) files: Vec<NamedFile>,
    /// Null if there is no `config.json`.
    pub(super) model: Value,
}

/// Reads the tokenizer at `path`: a `tokenizer.json`, or a folder with one or with an older vocabulary.
pub(super) fn read(path: &Path) -> Result<Found> {
    let is_folder = fs::is_folder(path);
    let file = if is_folder { path.join(TOKENIZER_JSON) } else { path.to_path_buf() };
    if !(fs::exists(&file) || is_folder && has_vocabulary(path)) {
        return Err(Problem::new("there is no tokenizer.json")
            .at(path.display())
            .hint("old tokenizers become one with `AutoTokenizer.from_pretrained(..).save_pretrained(..)` of transformers")
            .into());
    }
    let folder = fs::parent_of(&file);
    verify_sealed(&folder, |name| {
        name == TOKENIZER_JSON || name == MODEL_CONFIG || COMPANIONS.contains(&name)
    })?;
    let mut files = Vec::new();
    let mut place = folder.clone();
    if fs::exists(&file) {
        files.push((TOKENIZER_JSON.to_string(), read_whole(&file)?));
        place = file;
    }
    for name in COMPANIONS {
        let companion = folder.join(name);
        if fs::exists(&companion) {
            files.push((name.to_string(), read_whole(&companion)?));
        }
    }
    let model = folder.join(MODEL_CONFIG);
    let model = if fs::exists(&model) {
        // Errors in this file are reported when the model is read.
        serde_json::from_slice(&fs::read_capped(&model, TOKENIZER_BYTES_MAX)?).unwrap_or_default()
    } else {
        Value::Null
    };
    Ok(Found { place, files, model })
}

/// Reads a file of a tokenizer; an error if it is not text, or only a pointer to a file.
fn read_whole(path: &Path) -> Result<Vec<u8>> {
    let bytes = fs::read_capped(path, TOKENIZER_BYTES_MAX)?;
    fs::refuse_mistaken(path, &bytes, "a file of a tokenizer")?;
    Ok(bytes)
}

/// Returns true if a folder has a vocabulary from which a tokenizer.json can be made.
fn has_vocabulary(folder: &Path) -> bool {
    let [has_entries, has_ids, has_merges] =
        [ENTRIES, IDS, MERGES].map(|name| fs::exists(&folder.join(name)));
    has_entries || (has_ids && has_merges)
}

/// The content of the file called `name`.
pub(super) fn content<'a>(files: &'a [NamedFile], name: &str) -> Option<&'a [u8]> {
    files.iter().find(|(n, _)| n == name).map(|(_, bytes)| bytes.as_slice())
}

/// The JSON of the tokenizer without `padding` and `truncation`: texts are cut and padded when batches are
/// made.
///
/// Mutated values of these two made the `tokenizers` crate abort the process by an allocation that cannot
/// succeed.
pub(super) fn parse(files: &[NamedFile], place: &str) -> Result<Value> {
    Ok(parse_whole(files, place)?.0)
}

/// As [`parse`], and the removed `padding` and `truncation`.
pub(super) fn parse_whole(files: &[NamedFile], place: &str) -> Result<(Value, [Value; 2])> {
    let bytes =
        content(files, TOKENIZER_JSON).ok_or_else(|| Problem::new("there is no tokenizer.json").at(place))?;
    let mut json: Value = serde_json::from_slice(bytes)
        .map_err(|e| Problem::new(format!("is not JSON: {e}")).at(place).hint("is the file whole?"))?;
    let Some(object) = json.as_object_mut().filter(|object| object.contains_key("model")) else {
        return Err(Problem::new("is not a tokenizer: key `model` is missing").at(place).into());
    };
    let kept = ["padding", "truncation"].map(|key| object.insert(key.to_string(), Value::Null));
    Ok((json, kept.map(Option::unwrap_or_default)))
}

/// The tokenizer that `json` describes.
pub(super) fn build(json: &Value, place: &str) -> Result<tokenizers::Tokenizer> {
    check::check(json, place)?;
    let text = json.to_string();
    let built = quietly(|| tokenizers::Tokenizer::from_bytes(&text));
    Ok(built.map_err(|message| {
        Problem::new(format!("is not a tokenizer that can be used: {message}")).at(place)
    })?)
}
