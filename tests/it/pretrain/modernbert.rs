//! ModernBERT as its users meet it: pretrained, fine-tuned, used, interrupted.

use serde_json::json;

use crate::pretrain::family::{comes_to_the_same_bytes, fine_tunes_with, learns};
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
    learns(&place, &MODERNBERT);
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

    // The first map of the classifier and its norm are those of the masked language model.
    fine_tunes_with(&place, "classifier.bias, classifier.weight");
}

#[test]
fn an_interrupted_run_comes_to_the_same_bytes() {
    comes_to_the_same_bytes(&MODERNBERT);
}
