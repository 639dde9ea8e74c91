//! ModernBERT as its users meet it: pretrained, fine-tuned, used, interrupted.

use std::fs;

use serde_json::Value;
use serde_json::json;

use crate::material::examples;
use crate::workplace::Workplace;

/// A small ModernBERT in the place of the configuration's model: rows of 32 tokens are longer than the eight
/// that two of its layers see at once.
pub(super) const MODERNBERT: [&str; 2] = [
    "model={modernbert: {hidden_size: 32, num_hidden_layers: 3, num_attention_heads: 2, intermediate_size: 48, \
     local_attention: 8, max_position_embeddings: 40, embedding_dropout: 0.1, attention_dropout: 0.1, \
     mlp_dropout: 0.1, classifier_dropout: 0.1, classifier_pooling: mean, initializer_range: 0.05}}",
    "run.sample_text=the [MASK] sees [MASK] and the [MASK] sleeps.",
];

#[test]
fn a_run_leaves_a_folder_to_fine_tune_and_to_predict_with() {
    let place = Workplace::new();
    let done = place.run(&MODERNBERT, &[]).ok();
    assert!(done.stdout.contains("mask 3:"), "{}", done.stdout);
    let losses = place.series("train/loss");
    let (first, last) = (losses[0].1, losses[losses.len() - 1].1);
    assert!(first > 5.0 && last < first - 1.0, "from {first} to {last}");

    let config = place.json("final/config.json");
    for (key, value) in [
        ("architectures", json!(["ModernBertForMaskedLM"])),
        ("local_attention", 8.into()),
        ("norm_eps", 1e-5.into()),
        ("cls_token_id", 2.into()),
        ("sep_token_id", 3.into()),
        ("decoder_bias", true.into()),
    ] {
        assert_eq!(config[key], value, "{key}");
    }
    for key in ["type_vocab_size", "hidden_dropout_prob", "layer_norm_eps", "hidden_act"] {
        assert_eq!(config.get(key), None, "{key}");
    }
    let tokenizer = place.json("final/tokenizer_config.json");
    assert_eq!(tokenizer["tokenizer_class"], "PreTrainedTokenizerFast");
    assert_eq!(tokenizer["model_input_names"], json!(["input_ids", "attention_mask"]));
    place.program(&["checkpoint", "verify", "run/final"], "").ok();

    fs::write(place.path("rows.csv"), examples(24)).unwrap();
    let tuning = ["finetune", "--task", "classify", "--model", "run/final", "--train", "rows.csv"];
    let more = ["--eval", "rows.csv", "--set", "data.max_seq_length=32", "--set", "run.output_dir=tuned"];
    let tuned = place.program(&[&tuning[..], &more, &["--set", "training.max_steps=4"]].concat(), "").ok();
    // The first map of the classifier and its norm are those of the masked language model.
    assert!(tuned.stderr.contains(": classifier.bias, classifier.weight\n"), "{}", tuned.stderr);
    let told = place.program(&["predict", "--model", "tuned/final", "--input", "-"], "the eagle sees\n").ok();
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    let probabilities = told["probabilities"].as_object().unwrap();
    let sum: f64 = probabilities.values().map(|value| value.as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-5, "{told}");
}

#[test]
fn an_interrupted_run_comes_to_the_same_bytes() {
    let place = Workplace::new();
    let sets = MODERNBERT.iter().flat_map(|set| ["--set", set]);
    let args: Vec<&str> =
        ["verify-resume", "--config", "config.yaml", "--steps", "24"].into_iter().chain(sets).collect();
    let proof = place.program(&args, "").ok();
    assert!(proof.stdout.starts_with("the same bytes after 24 steps: "), "{proof:#?}");
}
