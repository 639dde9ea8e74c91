//! MPNet as its users meet it: pretrained, fine-tuned, used, interrupted.

use std::fs;

use serde_json::{Value, json};

use crate::pretrain::family::{
    comes_to_the_same_bytes, fine_tunes_with, is_used_and_trained_further, learns, serves_other_tasks,
};
use crate::workplace::Workplace;

/// A small MPNet with its WordPiece in the place of the configuration's model; rows of 32 tokens reach
/// distances that share a row of the table.
const MPNET: [&str; 2] = [
    "model={mpnet: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 64, \
     max_position_embeddings: 34}}",
    "tokenizer.algorithm=wordpiece",
];

#[test]
fn a_run_leaves_a_folder_to_fine_tune_and_to_predict_with() {
    let place = Workplace::new();
    learns(&place, &MPNET);
    let config = place.json("final/config.json");
    for (key, value) in [
        ("architectures", json!(["MPNetForMaskedLM"])),
        ("model_type", "mpnet".into()),
        ("relative_attention_num_buckets", 32.into()),
        ("pad_token_id", 1.into()),
        ("bos_token_id", 0.into()),
        ("eos_token_id", 2.into()),
        ("layer_norm_eps", 1e-5.into()),
    ] {
        assert_eq!(config[key], value, "{key}");
    }
    assert!(config.get("type_vocab_size").is_none() && config.get("classifier_dropout").is_none());
    let tokenizer = place.json("final/tokenizer_config.json");
    let tokens = ["tokenizer_class", "cls_token", "unk_token", "mask_token"].map(|key| &tokenizer[key]);
    assert_eq!(tokens, ["MPNetTokenizer", "<s>", "[UNK]", "<mask>"]);
    place.program(&["checkpoint", "verify", "run/final"], "").ok();
    let new = ["dense.bias", "dense.weight", "out_proj.bias", "out_proj.weight"];
    fine_tunes_with(&place, &new.map(|name| format!("classifier.{name}")).join(", "));
    serves_other_tasks(&place);
}

#[test]
fn an_interrupted_run_comes_to_the_same_bytes() {
    comes_to_the_same_bytes(&MPNET);
}

#[test]
fn a_folder_with_the_tokenizer_of_published_ones_is_used_and_trained_further() {
    is_used_and_trained_further(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/mpnet_cls"));
}

#[test]
fn what_transformers_would_compute_otherwise_is_refused() {
    let place = Workplace::new();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/mpnet_cls");
    fs::create_dir(place.path("other")).unwrap();
    for file in ["model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        fs::copy(format!("{golden}/{file}"), place.path("other").join(file)).unwrap();
    }
    let config: Value = serde_json::from_slice(&fs::read(format!("{golden}/config.json")).unwrap()).unwrap();
    for (key, value) in [("relative_attention_num_buckets", 64), ("pad_token_id", 0)] {
        let mut config = config.clone();
        config[key] = value.into();
        fs::write(place.path("other/config.json"), config.to_string()).unwrap();
        let found = format!("`{key}` {value} is not supported, only");
        place.program(&["predict", "--model", "other", "--input", "-"], "the cat\n").refused(2, &[&found]);
    }
    let other = ["task=replaced_token_detection", "run.output_dir=other-task"];
    let words = ["needs a head that MPNet does not have", "use `task: masked_lm`"];
    place.run(&[&MPNET[..], &other].concat(), &[]).refused(2, &words);
}
