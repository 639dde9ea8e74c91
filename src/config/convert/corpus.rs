//! Converts the arguments of run_mlm.py for the corpus, the model and the tokenizer, which need several
//! arguments each.

use std::path::Path;

use serde_json::{Value as Json, json};

use crate::convert::Draft;
use crate::convert::arguments::Arguments;
use base::families::Family;

/// The arguments that this module converts.
const TAKEN: [&str; 14] = [
    "train_file",
    "text_column_name",
    "line_by_line",
    "dataset_name",
    "dataset_config_name",
    "validation_file",
    "validation_split_percentage",
    "model_name_or_path",
    "model_type",
    "config_name",
    "config_overrides",
    "tokenizer_name",
    "preprocessing_num_workers",
    "mlm",
];

/// Adds the settings to the draft, and returns the names of the converted arguments.
pub(super) fn place(arguments: &Arguments, draft: &mut Draft) -> Vec<&'static str> {
    sources(arguments, draft);
    validation(arguments, draft);
    model(arguments, draft);
    if let Some(name) =
        arguments.text("tokenizer_name").filter(|_| arguments.get("model_name_or_path").is_none())
    {
        draft.set("tokenizer.path", name, "tokenizer_name");
    }
    if let Some(value) = arguments.get("preprocessing_num_workers") {
        draft.without_place(
            "preprocessing_num_workers",
            value,
            "all cores prepare the corpus; see `run.threads`",
        );
    }
    TAKEN.to_vec()
}

fn sources(arguments: &Arguments, draft: &mut Draft) {
    let files = match arguments.get("train_file") {
        Some(Json::Array(files)) => files.clone(),
        Some(file) => vec![file.clone()],
        None => {
            for name in ["dataset_name", "dataset_config_name"] {
                if let Some(value) = arguments.get(name) {
                    draft.without_place(name, value, "download it, and name the files under `data.sources`");
                }
            }
            draft.assume("data.sources", json!([{"files": ["corpus/*.txt"]}]), "the corpus, to be named");
            return;
        }
    };
    let mut source = serde_json::Map::new();
    if files.iter().all(is_plain_text) {
        // Holds with and without `line_by_line`, which only sets whether lines are joined to full rows
        // afterwards.
        source.insert("document".to_string(), json!("line"));
        if !arguments.is_on("line_by_line") {
            draft
                .notes
                .push("assumed: a line is a document, as it is there before rows are filled".to_string());
        }
    }
    source.insert("files".to_string(), json!(files));
    if let Some(field) = arguments.text("text_column_name") {
        source.insert("field".to_string(), json!(field));
    }
    draft.set("data.sources", json!([source]), "train_file");
}

/// Returns true for the path of a file that is not JSON, CSV, TSV or Parquet by its extension.
fn is_plain_text(file: &Json) -> bool {
    let extension = file.as_str().and_then(|file| Path::new(file).extension()).unwrap_or_default();
    !["json", "jsonl", "csv", "tsv", "parquet"].iter().any(|known| extension == *known)
}

fn validation(arguments: &Arguments, draft: &mut Draft) {
    if let Some(file) = arguments.get("validation_file") {
        draft.without_place("validation_file", file, "`data.validation_fraction` is split off the corpus");
    }
    if let Some(percent) = arguments.get("validation_split_percentage").and_then(Json::as_f64) {
        // Rounded, so that 5 percent become 0.05, not 0.050000000000000003.
        let share = (percent * 1e6).round() / 1e8;
        draft.set("data.validation_fraction", share, "validation_split_percentage");
    }
}

/// Converts the model: a folder to continue from, or a family with its sizes.
fn model(arguments: &Arguments, draft: &mut Draft) {
    if let Some(path) = arguments.text("model_name_or_path") {
        draft.set("model.path", path, "model_name_or_path");
        for name in ["config_name", "config_overrides", "tokenizer_name"] {
            if let Some(value) = arguments.get(name) {
                draft.without_place(name, value, "architecture and tokenizer are those of `model.path`");
            }
        }
        return;
    }
    let named = ["model_type", "config_name", "tokenizer_name"].into_iter().find_map(|name| {
        let text = arguments.text(name)?.to_lowercase();
        family_in(&text).map(|family| (name, family))
    });
    let family = if let Some((name, family)) = named {
        draft.set(&format!("model.{}", family.name), json!({}), name);
        family
    } else {
        let why = "no argument names a family that is built here";
        let first = Family::ALL[0];
        draft.assume(&format!("model.{}", first.name), json!({}), why);
        first
    };
    if let Some(name) = arguments.get("config_name") {
        let why = format!(
            "the sizes are those of the base model of `model.{}` where no other is given",
            family.name
        );
        draft.without_place("config_name", name, &why);
    }
    for pair in
        arguments.text("config_overrides").unwrap_or_default().split(',').filter(|pair| !pair.is_empty())
    {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let from = format!("config_overrides: {key}");
        let value: Json = serde_json::from_str(value.trim()).unwrap_or_else(|_| value.trim().into());
        let own = family.key(key.trim()).unwrap_or(key.trim());
        draft.set(&format!("model.{}.{own}", family.name), value, &from);
    }
}

/// Returns the family with the longest name that a text contains: `xlm-roberta` contains `roberta`, too.
fn family_in(text: &str) -> Option<Family> {
    let text = text.replace('_', "-");
    let found = Family::ALL.into_iter().filter(|family| text.contains(&family.name.replace('_', "-")));
    found.max_by_key(|family| family.name.len())
}
