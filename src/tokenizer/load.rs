//! Reads the files of an existing tokenizer and hands its JSON to the `tokenizers` crate with care.
//!
//! A `tokenizer.json` from outside is hostile until proven otherwise: sizes are capped and the parts that
//! made the crate abort the process are dropped.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::Value;

use crate::checkpoint::verify_sealed;
use crate::error::Problem;
use crate::fs;
use crate::quietly::quietly;
use crate::tokenizer::TOKENIZER_BYTES_MAX;
use crate::tokenizer::check;
use crate::tokenizer::vocab_txt;

/// Files that belong to a tokenizer besides `tokenizer.json`.
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

/// The file that holds a whole tokenizer.
pub const TOKENIZER_JSON: &str = "tokenizer.json";
const VOCABULARY: &str = "vocab.txt";

/// A file's name and its content.
pub(super) type NamedFile = (String, Vec<u8>);

/// The path of the `tokenizer.json` and all files of the tokenizer at `path`; an old folder of BERT or MPNet,
/// which has only a `vocab.txt`, gets one.
pub(super) fn read(path: &Path) -> Result<(PathBuf, Vec<NamedFile>)> {
    let file = if fs::is_folder(path) { path.join(TOKENIZER_JSON) } else { path.to_path_buf() };
    if !fs::exists(&file) && !has_only_vocabulary(path) {
        return Err(Problem::new("there is no tokenizer.json")
            .at(path.display())
            .hint("old tokenizers become one with `AutoTokenizer.from_pretrained(..).save_pretrained(..)` of transformers")
            .into());
    }
    verify_sealed(&fs::parent_of(&file), |name| name == TOKENIZER_JSON || COMPANIONS.contains(&name))?;
    let mut files = Vec::new();
    if fs::exists(&file) {
        files.push((TOKENIZER_JSON.to_string(), read_whole(&file)?));
    }
    for name in COMPANIONS {
        let companion = fs::parent_of(&file).join(name);
        if fs::exists(&companion) {
            files.push((name.to_string(), read_whole(&companion)?));
        }
    }
    if content(&files, TOKENIZER_JSON).is_none() {
        let place = fs::parent_of(&file).join(VOCABULARY);
        let vocabulary = content(&files, VOCABULARY).unwrap_or_default();
        let config = content(&files, "tokenizer_config.json");
        let made = vocab_txt::tokenizer_json(vocabulary, config, &place.display().to_string())?;
        files.insert(0, (TOKENIZER_JSON.to_string(), made));
    }
    Ok((file, files))
}

/// A file of a tokenizer, which is text and no pointer to one.
fn read_whole(path: &Path) -> Result<Vec<u8>> {
    let bytes = fs::read_capped(path, TOKENIZER_BYTES_MAX)?;
    fs::refuse_mistaken(path, &bytes, "a file of a tokenizer")?;
    Ok(bytes)
}

/// Whether a folder has a list of entries alone, of which a `tokenizer.json` can be made.
fn has_only_vocabulary(path: &Path) -> bool {
    fs::is_folder(path) && fs::exists(&path.join(VOCABULARY))
}

/// The content of the file called `name`.
pub(super) fn content<'a>(files: &'a [NamedFile], name: &str) -> Option<&'a [u8]> {
    files.iter().find(|(n, _)| n == name).map(|(_, bytes)| bytes.as_slice())
}

/// The JSON of the tokenizer without `padding` and `truncation`: texts are cut and put together where batches
/// are made.
///
/// Mutated values of these two made the `tokenizers` crate abort the process by an allocation that cannot
/// succeed.
pub(super) fn parse(files: &[NamedFile], place: &str) -> Result<Value> {
    let bytes =
        content(files, TOKENIZER_JSON).ok_or_else(|| Problem::new("there is no tokenizer.json").at(place))?;
    let mut json: Value = serde_json::from_slice(bytes)
        .map_err(|e| Problem::new(format!("is not JSON: {e}")).at(place).hint("is the file whole?"))?;
    let Some(object) = json.as_object_mut().filter(|object| object.contains_key("model")) else {
        return Err(Problem::new("is not a tokenizer: key `model` is missing").at(place).into());
    };
    object.insert("padding".to_string(), Value::Null);
    object.insert("truncation".to_string(), Value::Null);
    Ok(json)
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
