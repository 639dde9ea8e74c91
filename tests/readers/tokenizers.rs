//! Tokenizers of each algorithm, loaded and used, and the files beside a `tokenizer.json`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use mlmtrain::config::TokenizerConfig;
use mlmtrain::families::Family;
use mlmtrain::tokenizer::{Tokenizer, Trainer, TrainerOptions};
use serde_json::json;

use super::corpora::texts;
use super::{Input, Outcome, Runs, copy_tree};

const TARGET: &str = "tokenizer";

/// What a tokenizer may come with; what is not read as such is carried along with the model.
const COMPANIONS: [(&str, &str); 4] = [
    ("special_tokens_map.json", ""),
    ("vocab.json", "{\"a\": 0, \"b\": 1, \"ab\": 2}"),
    ("merges.txt", "#version: 0.2\na b\n"),
    ("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n"),
];

pub(super) fn all(folder: &Path, runs: &Runs) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    for (algorithm, family) in
        [("byte_level_bpe", Family::ROBERTA), ("wordpiece", Family::BERT), ("unigram", Family::ROBERTA)]
    {
        let config: TokenizerConfig =
            serde_json::from_value(json!({"algorithm": algorithm, "vocab_size": 400}))?;
        let mut trainer = Trainer::new(TrainerOptions::new(&config, family, 512))?;
        trainer.add(&texts())?;
        let made = trainer.finish(|_| {})?.tokenizer;
        let file = made.files().iter().find(|(name, _)| name == "tokenizer.json");
        let (_, bytes) = file.context("a tokenizer has this file")?;
        let path = folder.join(algorithm).join("tokenizer.json");
        inputs.push(Input::new(TARGET, &format!("tokenizer.json of {algorithm}"), path, bytes.clone(), used));
    }
    for (name, content) in [("tokenizer_config.json", "")].into_iter().chain(COMPANIONS) {
        let own = folder.join(format!("tokenizer-{name}"));
        copy_tree(&runs.tuned("final"), &own)?;
        fs::remove_file(own.join("manifest.json"))?;
        if !content.is_empty() {
            fs::write(own.join(name), content)?;
        }
        let read = |path: &Path| used(path.parent().context("it lies in a folder")?);
        inputs.push(Input::of_file(TARGET, name, own.join(name), read)?);
    }
    Ok(inputs)
}

/// One that loads must not panic when it is used either; whether it has a use is another question.
fn used(path: &Path) -> Outcome {
    let tokenizer = Tokenizer::load(path)?;
    let ids = tokenizer.encode("the fox, äiti <mask>").unwrap_or_default();
    let _ = tokenizer.encode_with_offsets("the fox, äiti\u{301} [MASK] 漢");
    let _ = tokenizer.encode_corpus(&["the fox", "", "äiti \u{1f98a}"]);
    let _ = tokenizer.decode(&ids, true);
    let _ = tokenizer.ordinary_ids().last().and_then(|&id| tokenizer.token(id));
    Ok(1)
}
