//! ALBERT as its users meet it: pretrained, fine-tuned, used, interrupted.

use serde_json::json;

use crate::pretrain::family::{
    comes_to_the_same_bytes, fine_tunes_with, is_used_and_trained_further, learns,
};
use crate::workplace::Workplace;

/// A small ALBERT in the place of the configuration's model.
const ALBERT: [&str; 2] = [
    "model={albert: {embedding_size: 24, hidden_size: 32, num_hidden_layers: 3, num_attention_heads: 2, \
     intermediate_size: 48, hidden_dropout_prob: 0.1, max_position_embeddings: 40, initializer_range: 0.05}}",
    "run.sample_text=the [MASK] sees [MASK] and the [MASK] sleeps.",
];

#[test]
fn a_run_leaves_a_folder_to_fine_tune_and_to_predict_with() {
    let place = Workplace::new();
    learns(&place, &ALBERT);
    let config = place.json("final/config.json");
    for (key, value) in [
        ("architectures", json!(["AlbertForMaskedLM"])),
        ("model_type", "albert".into()),
        ("embedding_size", 24.into()),
        ("hidden_act", "gelu_new".into()),
        ("num_hidden_groups", 1.into()),
        ("inner_group_num", 1.into()),
        ("classifier_dropout_prob", 0.1.into()),
        ("bos_token_id", 2.into()),
        ("eos_token_id", 3.into()),
    ] {
        assert_eq!(config[key], value, "{key}");
    }
    place.program(&["checkpoint", "verify", "run/final"], "").ok();
    fine_tunes_with(&place, "albert.pooler.bias, albert.pooler.weight, classifier.bias, classifier.weight");
    for (set, part) in [
        ("training.frozen_layers=2", "training.frozen_layers: freezes some of the layers"),
        ("training.layerwise_lr_decay=0.8", "training.layerwise_lr_decay: gives each layer its own rate"),
    ] {
        let data = ["--train", "rows.csv", "--eval", "rows.csv", "--set", "data.max_seq_length=32"];
        let tuning = ["finetune", "--task", "classify", "--model", "run/final", "--set", set];
        let hint =
            if set.contains("frozen") { "freeze the `embeddings`, or all 3 layers" } else { "remove it" };
        place.program(&[&tuning[..], &data].concat(), "").refused(2, &[part, hint]);
    }
    let other = ["run.output_dir=other", "training.layerwise_lr_decay=0.8"];
    place.run(&[&ALBERT[..], &other].concat(), &[]).refused(2, &["its own rate"]);
}

#[test]
fn an_interrupted_run_comes_to_the_same_bytes() {
    comes_to_the_same_bytes(&ALBERT);
}

#[test]
fn a_folder_with_the_tokenizer_of_published_ones_is_used_and_trained_further() {
    is_used_and_trained_further(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/albert_cls"));
}
