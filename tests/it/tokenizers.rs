//! Tokenizer folders in many forms against what transformers gives for them: the grid that
//! `scripts/make_tokenizer_golden.py` wrote (its header names the versions).

use std::fs;
use std::path::Path;

use mlmtrain::tasks::sequence::{Collator, Encoded};
use mlmtrain::tokenizer::Tokenizer;
use serde_json::Value;

/// Token ids and token types.
type Ids = (Vec<u32>, Vec<u32>);

const LONGEST: usize = 256;

fn golden() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tokenizers.json");
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Writes the folder of a case.
fn write(folder: &Path, golden: &Value, case: &Value) {
    let mut json = golden["bases"][case["base"].as_str().unwrap()].clone();
    for (key, value) in case["change"].as_object().into_iter().flatten() {
        json[key] = value.clone();
    }
    for (key, value) in case["model"].as_object().into_iter().flatten() {
        json["model"][key] = value.clone();
    }
    let base = json["model"].clone();
    let mut files = vec![("tokenizer.json".to_string(), json)];
    files.extend(
        case["files"].as_object().into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())),
    );
    let without =
        |name: &str| case["without"].as_array().is_some_and(|names| names.iter().any(|n| n == name));
    for (name, content) in files {
        if !content.is_null() && !without(&name) {
            let text = content.as_str().map_or_else(|| content.to_string(), |name| of_base(&base, name));
            fs::write(folder.join(name), text).unwrap();
        }
    }
}

/// A vocabulary file of a base.
fn of_base(model: &Value, name: &str) -> String {
    let vocab = model["vocab"].as_object().unwrap();
    let mut entries: Vec<(&String, u64)> =
        vocab.iter().map(|(entry, id)| (entry, id.as_u64().unwrap())).collect();
    entries.sort_by_key(|(_, id)| *id);
    match name {
        "entries" => entries.iter().flat_map(|(entry, _)| [entry.as_str(), "\n"]).collect(),
        "ids" => model["vocab"].to_string(),
        _ => {
            let pairs = model["merges"].as_array().unwrap().iter().map(|pair| texts(pair).join(" ") + "\n");
            std::iter::once("#version: 0.2\n".to_string()).chain(pairs).collect()
        }
    }
}

/// One text or a pair as a model gets it.
fn framed(tokenizer: &Tokenizer, texts: &[&str]) -> anyhow::Result<Ids> {
    let collator = Collator::new(tokenizer, 2, LONGEST, true)?;
    let collator = tokenizer.model_max_length().map_or(collator, |length| collator.cut_at(length));
    let mut ids = tokenizer.encode_examples(texts)?.into_iter();
    let first = ids.next().unwrap_or_default();
    let mut examples = [Encoded { first, second: ids.next(), ..Encoded::default() }];
    collator.truncate(&mut examples);
    let batch = collator.batch(&examples, 0);
    Ok((batch.ids, batch.token_type_ids))
}

fn words(tokenizer: &Tokenizer, words: &[&str]) -> anyhow::Result<Vec<u32>> {
    Ok(tokenizer.framing().single.around(&tokenizer.encode_words(words)?.concat()))
}

fn numbers(list: &Value) -> Vec<u32> {
    list.as_array().into_iter().flatten().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// Ids and types as the golden file has them: types of all zeros are left out.
fn wanted(entry: &Value) -> Ids {
    let (ids, mut types) = (numbers(&entry[0]), numbers(&entry[1]));
    types.resize(ids.len(), 0);
    (ids, types)
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

/// What of a case differs, and how many cells it has.
fn faults(tokenizer: &Tokenizer, golden: &Value, case: &Value, found: &Value) -> (Vec<String>, usize) {
    let (mut faults, mut cells) = (Vec::new(), 0);
    let mut check = |what: &str, same: bool| {
        cells += 1;
        if !same {
            faults.push(format!("{}: {what}", case["name"].as_str().unwrap()));
        }
    };
    let spelled = case["name"].as_str().unwrap().starts_with("spelled/");
    let singles = if spelled { vec![golden["spelled"].as_str().unwrap()] } else { texts(&golden["texts"]) };
    let same = singles.iter().zip(found["single"].as_array().unwrap());
    check("single", same.into_iter().all(|(text, want)| framed(tokenizer, &[text]).unwrap() == wanted(want)));
    let pairs = golden["pairs"].as_array().unwrap().iter().zip(found["pair"].as_array().unwrap());
    check(
        "pair",
        pairs.into_iter().all(|(pair, want)| framed(tokenizer, &texts(pair)).unwrap() == wanted(want)),
    );
    if !found["words"].is_null() {
        check("words", words(tokenizer, &texts(&golden["words"])).unwrap() == numbers(&found["words"]));
    }
    (faults, cells)
}

/// Each folder twice: as it is, and as it is written again beside its `config.json`.
#[test]
fn ids_and_types_are_those_of_transformers() {
    let golden = golden();
    let (mut wrong, mut cells, mut refused) = (Vec::new(), 0, 0);
    for case in golden["cases"].as_array().unwrap() {
        let (folder, again) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(folder.path(), &golden, case);
        let name = case["name"].as_str().unwrap();
        let read = match (Tokenizer::load(folder.path()), case.get("refused")) {
            (Err(_), Some(_)) => {
                refused += 1;
                continue;
            }
            (Ok(_), Some(reason)) => {
                wrong.push(format!("{name}: must be refused: {reason}"));
                continue;
            }
            (Err(error), None) => {
                wrong.push(format!("{name}: {error:#}"));
                continue;
            }
            (Ok(read), None) => read,
        };
        for (name, bytes) in read.files() {
            fs::write(again.path().join(name), bytes).unwrap();
        }
        fs::copy(folder.path().join("config.json"), again.path().join("config.json")).unwrap();
        let written = Tokenizer::load(again.path()).unwrap();
        for (tokenizer, what) in [(&read, ""), (&written, " (written)")] {
            let (faults, count) = faults(
                tokenizer,
                &golden,
                case,
                &golden["outcomes"][case["outcome"].as_u64().unwrap() as usize],
            );
            wrong.extend(faults.into_iter().map(|fault| format!("{fault}{what}")));
            cells += count;
        }
        if written.fingerprint() != read.fingerprint() {
            wrong.push(format!("{name}: another tokenizer is written"));
        }
    }
    assert!(wrong.is_empty(), "{} of {cells} cells:\n{}", wrong.len(), wrong.join("\n"));
    assert!(cells > 2000 && refused > 50, "{cells} cells, {refused} refused");
}
