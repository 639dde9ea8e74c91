//! Vocabularies of old folders without a tokenizer.json, and vocabularies that a class reads as a kind of
//! model other than that of the file.

use serde_json::{Map, Value, json};

use crate::tokenizer::load;
use crate::tokenizer::load::{ENTRIES, IDS, MERGES, NamedFile, TOKENIZER_JSON};
use crate::tokenizer::published::class::{Class, Kind};
use base::error::Problem;

/// `files` with a tokenizer.json (built from the vocabulary if there is none), and the class that reads it;
/// `named` is the class named by the folder.
pub(super) fn complete(
    mut files: Vec<NamedFile>,
    named: Option<Class>,
    place: &str,
) -> Result<(Vec<NamedFile>, Class), Problem> {
    if load::content(&files, TOKENIZER_JSON).is_some() {
        return Ok((files, named.unwrap_or(Class::General)));
    }
    let [is_list, has_ids, has_merges] =
        [ENTRIES, IDS, MERGES].map(|name| load::content(&files, name).is_some());
    let is_pair = has_ids && has_merges;
    let (model, class) = match (named, named.and_then(Class::kind)) {
        (Some(class), Some(Kind::WordPiece)) if is_list => (word_piece(&files, place)?, class),
        (Some(class), Some(Kind::Bpe)) if is_pair => (bpe(&files, place)?, class),
        (None, _) if is_list => {
            let model = word_piece(&files, place)?;
            let class = if is_mpnet(&model["vocab"]) { Class::Mpnet } else { Class::Bert };
            (model, class)
        }
        (None, _) if is_pair => (bpe(&files, place)?, Class::Roberta),
        (Some(class), _) if is_list || is_pair => {
            let found = if is_list { ENTRIES } else { IDS };
            let message = format!(
                "there is no tokenizer.json, and `tokenizer_class` {} reads no {found}",
                class.name()
            );
            return Err(Problem::new(message).at(place));
        }
        _ => return Err(Problem::new("there is no tokenizer.json").at(place)),
    };
    let decoder = match class {
        Class::Herbert => json!({"type": "BPEDecoder", "suffix": "</w>"}),
        _ if class.kind() == Some(Kind::WordPiece) => {
            json!({"type": "WordPiece", "prefix": "##", "cleanup": true})
        }
        _ => json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
    };
    let json = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": decoder, "model": model,
    });
    files.insert(0, (TOKENIZER_JSON.to_string(), json.to_string().into_bytes()));
    Ok((files, class))
}

/// Returns an error if the vocabulary lacks one of these special tokens; `is_known` returns true for a known
/// token.
pub(super) fn require(names: &[&str], is_known: impl Fn(&str) -> bool, place: &str) -> Result<(), Problem> {
    let missing = names.iter().find(|name| !is_known(name));
    missing.map_or(Ok(()), |name| {
        let message = format!("its vocabulary has no entry `{name}`");
        Err(Problem::new(message).at(place).hint("is it the vocabulary of the class that its config names?"))
    })
}

/// Returns a note if the vocabulary has entries with capital letters although texts are lowercased, which the
/// classes do by default.
pub(super) fn note_capitals(model: &Value) -> Option<String> {
    let entries = model["vocab"].as_object()?;
    let ordinary = entries.keys().filter(|entry| !entry.starts_with(['[', '<']));
    let capital = ordinary.filter(|entry| entry.contains(char::is_uppercase)).count();
    (capital > 0).then(|| {
        format!(
            "{ENTRIES}: {capital} of {} entries have capital letters, and texts are lowered, as transformers does \
             where tokenizer_config.json has no `do_lower_case`",
            entries.len()
        )
    })
}

fn text<'a>(files: &'a [NamedFile], name: &str, place: &str) -> Result<&'a str, Problem> {
    let bytes = load::content(files, name).unwrap_or_default();
    std::str::from_utf8(bytes).map_err(|e| Problem::new(format!("its {name} is not UTF-8: {e}")).at(place))
}

/// One entry per line; the last of several equal entries counts, as in the `tokenizers` crate.
fn word_piece(files: &[NamedFile], place: &str) -> Result<Value, Problem> {
    let lines = text(files, ENTRIES, place)?.lines();
    let vocab: Map<String, Value> =
        lines.zip(0u32..).map(|(line, id)| (line.trim_end().to_string(), id.into())).collect();
    Ok(json!({
        "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100, "vocab": vocab,
    }))
}

fn is_mpnet(vocab: &Value) -> bool {
    ["<s>", "</s>", "<pad>", "<mask>"].iter().all(|name| !vocab[*name].is_null())
}

/// Reads a table of ids, and merges with one pair of pieces per line.
fn bpe(files: &[NamedFile], place: &str) -> Result<Value, Problem> {
    let vocab: Map<String, Value> = serde_json::from_str(text(files, IDS, place)?)
        .map_err(|e| Problem::new(format!("its {IDS} is no table of ids: {e}")).at(place))?;
    let lines =
        text(files, MERGES, place)?.lines().zip(1..).filter(|(line, _)| !line.starts_with("#version"));
    let mut merges = Vec::new();
    for (line, number) in lines {
        let pair: Vec<&str> = line.split(' ').collect();
        let [left, right] = pair[..] else {
            return Err(
                Problem::new(format!("its {MERGES}:{number} is no pair of pieces: {line:?}")).at(place)
            );
        };
        merges.push(json!([left, right]));
    }
    Ok(json!({"type": "BPE", "vocab": vocab, "merges": merges}))
}

/// The error for a vocabulary that `class` cannot read.
fn unreadable(class: Class, place: &str) -> Problem {
    let message =
        format!("`tokenizer_class` {} cannot read the vocabulary of its tokenizer.json", class.name());
    Problem::new(message).at(place).hint("name the class of that vocabulary, or `PreTrainedTokenizerFast`")
}

/// Converts `model` to the kind of model that `class` builds from a vocabulary; returns true if it was of
/// another kind.
pub(super) fn as_kind(class: Class, model: &mut Value, place: &str) -> Result<bool, Problem> {
    let Some(fields) = model.as_object_mut() else {
        return Err(Problem::new("its `model` is no object").at(place));
    };
    let name = match class.kind() {
        Some(Kind::WordPiece) => "WordPiece",
        Some(Kind::Bpe) => "BPE",
        Some(Kind::Unigram) => "Unigram",
        None => return Ok(false),
    };
    let is_other = fields.get("type").is_some_and(|kind| kind != name);
    if !is_other {
        return Ok(false);
    }
    let mut vocab = fields.remove("vocab").ok_or_else(|| unreadable(class, place))?;
    if name != "Unigram"
        && let Some(pieces) = vocab.as_array()
    {
        let spellings = pieces.iter().map(|piece| piece.as_str().or_else(|| piece[0].as_str()));
        let ids = spellings.zip(0u32..).map(|(text, id)| Some((text?.to_string(), id.into())));
        vocab = Value::Object(
            ids.collect::<Option<Map<String, Value>>>().ok_or_else(|| unreadable(class, place))?,
        );
    }
    let mut made = Map::from_iter([("type".to_string(), name.into()), ("vocab".to_string(), vocab)]);
    if name == "BPE" {
        made.insert("merges".to_string(), fields.remove("merges").unwrap_or_else(|| json!([])));
    }
    *fields = made;
    Ok(true)
}
