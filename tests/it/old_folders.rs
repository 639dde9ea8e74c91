//! Model folders as they were written years ago, and folders that cannot be read.

use std::fs;
use std::path::Path;

use mlmtrain::checkpoint::{TensorFile, write_tensors};

use crate::workplace::Workplace;

/// The folder of a golden model as BERT's first folders were: `gamma` and `beta` for norms, and a `vocab.txt`
/// alone.
fn old_bert(place: &Workplace) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/bert");
    let old = place.path("old");
    fs::create_dir(&old).unwrap();
    fs::copy(golden.join("config.json"), old.join("config.json")).unwrap();
    let tensors = TensorFile::open(&golden.join("model.safetensors")).unwrap().tensors().unwrap();
    let renamed = |name: &str| {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
    };
    let tensors: Vec<_> = tensors.into_iter().map(|(name, tensor)| (renamed(&name), tensor)).collect();
    assert!(tensors.iter().any(|(name, _)| name.ends_with("LayerNorm.gamma")));
    write_tensors(&mut fs::File::create(old.join("model.safetensors")).unwrap(), &tensors).unwrap();
    let first =
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "The", "bird", "##s", "sing"].map(String::from);
    let entries: Vec<String> = first.into_iter().chain((9..101).map(|id| format!("Word{id}"))).collect();
    fs::write(old.join("vocab.txt"), entries.join("\n")).unwrap();
}

#[test]
fn a_cased_bert_with_a_vocabulary_alone_fills_in_masks() {
    let place = Workplace::new();
    old_bert(&place);
    let told = place.program(&["predict", "--model", "old", "--input", "-"], "The birds [MASK]\n").ok();
    let told: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    let candidates = told["masks"][0].as_array().unwrap();
    assert_eq!(candidates.len(), 5);
    let names = ["The", "bird", "##s", "sing", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
    for candidate in candidates {
        let token = candidate["token"].as_str().unwrap().trim();
        assert!(token.starts_with("Word") || names.contains(&token), "{candidate}");
    }
}

#[test]
fn folders_that_cannot_be_read_say_what_to_do() {
    let place = Workplace::new();
    old_bert(&place);
    let predict = ["predict", "--model", "old", "--input", "-"];
    fs::rename(place.path("old/model.safetensors"), place.path("old/pytorch_model.bin")).unwrap();
    place.program(&predict, "a").refused(2, &["pickle", "convert it once in Python", "save_pretrained"]);
    fs::write(place.path("old/config.json"), r#"{"model_type": "gpt2"}"#).unwrap();
    let families = ["`model_type` \"gpt2\" is not supported", "`modernbert`", "`distilbert`", "`albert`"];
    place.program(&predict, "a").refused(2, &families);
}
