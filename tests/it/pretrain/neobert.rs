//! NeoBERT as its users meet it: pretrained, fine-tuned, used, interrupted, continued.

use std::fs;

use serde_json::json;

use crate::pretrain::family::{comes_to_the_same_bytes, fine_tunes_with, learns, serves_other_tasks};
use crate::workplace::Workplace;

/// A small NeoBERT with its WordPiece in the place of the configuration's model. The feed-forward width is
/// 40: two thirds of 56, rounded up.
const NEOBERT: [&str; 3] = [
    "model={neobert: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 56, \
     max_length: 40, decoder_init_range: 0.1, hidden_dropout_prob: 0.1}}",
    "tokenizer={algorithm: wordpiece, lowercase: true, vocab_size: 400}",
    "run.sample_text=the [MASK] sees [MASK] and the [MASK] sleeps.",
];

#[test]
fn a_run_leaves_a_folder_to_fine_tune_and_to_predict_with() {
    let place = Workplace::new();
    learns(&place, &NEOBERT);
    let config = place.json("final/config.json");
    for (key, value) in [
        ("architectures", json!(["NeoBERTLMHead"])),
        ("model_type", "neobert".into()),
        ("max_length", 40.into()),
        ("norm_eps", 1e-5.into()),
        ("intermediate_size", 56.into()),
        ("tie_word_embeddings", false.into()),
    ] {
        assert_eq!(config[key], value, "{key}");
    }
    let code = "chandar-lab/NeoBERT--model.NeoBERT";
    assert_eq!(config["auto_map"]["AutoModel"], code);
    assert_eq!(config["auto_map"]["AutoModelForMaskedLM"], format!("{code}LMHead"));
    for key in ["max_position_embeddings", "layer_norm_eps", "hidden_act", "type_vocab_size"] {
        assert_eq!(config.get(key), None, "{key}");
    }
    assert_eq!(place.json("final/tokenizer_config.json")["tokenizer_class"], "BertTokenizer");
    place.program(&["checkpoint", "verify", "run/final"], "").ok();
    fine_tunes_with(&place, "classifier.bias, classifier.weight, dense.bias, dense.weight");
    serves_other_tasks(&place);
}

#[test]
fn an_interrupted_run_comes_to_the_same_bytes() {
    comes_to_the_same_bytes(&NEOBERT);
}

/// A run from a folder keeps the decoder's own weight: at its first step it is the model that was trained.
#[test]
fn a_run_from_a_folder_begins_with_all_its_weights() {
    let place = Workplace::new();
    let begun = place.run(&NEOBERT, &[]).ok();
    assert!(begun.stdout.contains("trained"), "{}", begun.stdout);
    let folder = ["model={path: run/final}", "tokenizer={path: run/final}", "run.output_dir=more"];
    let step = ["training.max_steps=1", "training.learning_rate=1.0e-30", "run.sample_text=null"];
    place.run(&[folder, step].concat(), &[]).ok();
    let [trained, more] = ["run/final", "more/final"]
        .map(|folder| fs::read(place.path(folder).join("model.safetensors")).unwrap());
    let start = |bytes: &[u8]| 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    assert!(trained[start(&trained)..] == more[start(&more)..], "the weights differ");
}

#[test]
fn keys_and_tasks_of_other_families_are_refused() {
    let place = Workplace::new();
    let phases = "training.phases=[{until_step: 2, max_seq_length: 16, global_rope_theta: 100}]";
    place.run(&[&NEOBERT[..], &[phases]].concat(), &[]).refused(2, &["NeoBERT has no `global_rope_theta`"]);
    let narrow = ["model.neobert.intermediate_size=1"];
    place.run(&[&NEOBERT[..], &narrow].concat(), &[]).refused(2, &["1 leaves no feed-forward width"]);
    let other = ["task=replaced_token_detection"];
    place.run(&[&NEOBERT[..], &other].concat(), &[]).refused(2, &["needs a head that NeoBERT does not have"]);
}
