//! DeBERTa as its users meet it: pretrained, fine-tuned, used, interrupted.

use candle_core::Device;
use serde_json::{Value, json};

use crate::pretrain::family::{
    comes_to_the_same_bytes, fine_tunes_with, is_used_and_trained_further, learns,
};
use crate::workplace::Workplace;

/// A small DeBERTa in the place of the configuration's model: rows of 32 tokens are longer than the six
/// distances to either side that have a row of their own.
const DEBERTA: [&str; 2] = [
    "model={deberta-v2: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 48, \
     max_position_embeddings: 40, position_buckets: 12, initializer_range: 0.05}}",
    "run.sample_text=the [MASK] sees [MASK] and the [MASK] sleeps.",
];

/// The same with the authors' mask decoder.
const DECODING: [&str; 2] = [
    "model={deberta-v2: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 48, \
     max_position_embeddings: 40, position_buckets: 12, initializer_range: 0.05, enhanced_mask_decoder: true}}",
    DEBERTA[1],
];

#[test]
fn a_run_with_a_mask_decoder_leaves_one_to_use_and_an_encoder_to_fine_tune() {
    let place = Workplace::new();
    learns(&place, &DECODING);
    assert_eq!(place.json("final/config.json")["enhanced_mask_decoder"], true);
    place.program(&["checkpoint", "verify", "run/final"], "").ok();
    fine_tunes_with(&place, "classifier.bias, classifier.weight, pooler.dense.bias, pooler.dense.weight");
}

#[test]
fn a_run_leaves_a_folder_to_fine_tune_and_to_predict_with() {
    let place = Workplace::new();
    learns(&place, &DEBERTA);
    let config = place.json("final/config.json");
    for (key, value) in [
        ("architectures", json!(["DebertaV2ForMaskedLM"])),
        ("model_type", "deberta-v2".into()),
        ("pos_att_type", "p2c|c2p".into()),
        ("norm_rel_ebd", "layer_norm".into()),
        ("position_buckets", 12.into()),
        ("relative_attention", true.into()),
        ("type_vocab_size", 0.into()),
    ] {
        assert_eq!(config[key], value, "{key}");
    }
    place.program(&["checkpoint", "verify", "run/final"], "").ok();

    let new = "classifier.bias, classifier.weight, pooler.dense.bias, pooler.dense.weight";
    fine_tunes_with(&place, new);
    // Trained further by telling replaced tokens, its generator has embeddings of the same width.
    let begun = ["model={path: run/final}", "run.output_dir=more", "task=replaced_token_detection"];
    let sets = begun.into_iter().chain(["rtd.generator_hidden_size=16", DEBERTA[1]]);
    let sets: Vec<&str> = sets.flat_map(|set| ["--set", set]).collect();
    place
        .program(&[&["pretrain", "--config", "config.yaml"][..], &sets].concat(), "")
        .refused(2, &["`rtd.generator_hidden_size` 16 is not the model's 32", "generator_num_hidden_layers"]);
}

/// A folder to begin with, for longer sequences than its model takes.
const MORE: &str = "model={path: run/final, max_position_embeddings: 48}";

/// The same by telling replaced tokens, as v3 is trained.
fn v3() -> Vec<&'static str> {
    DEBERTA.iter().copied().chain(["task=replaced_token_detection"]).collect()
}

#[test]
fn an_interrupted_run_comes_to_the_same_bytes() {
    let decoding_v3 = [&DECODING[..], &["task=replaced_token_detection"]].concat();
    for sets in [DEBERTA.to_vec(), DECODING.to_vec(), v3(), decoding_v3] {
        comes_to_the_same_bytes(&sets);
    }
}

#[test]
fn a_discriminator_holds_the_sum_of_both_word_embeddings_and_the_checkpoint_what_was_added() {
    let place = Workplace::new();
    let done = place.run(&v3(), &[]).ok();
    assert!(done.stdout.contains("discriminator loss") && done.stdout.contains("mask 3:"), "{}", done.stdout);
    assert_eq!(place.json("final/generator/config.json")["num_hidden_layers"], 1);
    assert_eq!(place.json("final/discriminator/config.json").get("architectures"), None);
    let read = |file: &str, name: &str| {
        let tensors = candle_core::safetensors::load(place.path("run").join(file), &Device::Cpu).unwrap();
        tensors[name].clone()
    };
    let word = "deberta.embeddings.word_embeddings.weight";
    let [generator, discriminator] = ["generator", "discriminator"]
        .map(|model| read(&format!("checkpoint-40/{model}/model.safetensors"), word));
    let added = read("checkpoint-40/trainer/added.safetensors", &format!("discriminator.{word}"));
    let sum = (&generator + &added).unwrap().to_vec2::<f32>().unwrap();
    assert_eq!(discriminator.to_vec2::<f32>().unwrap(), sum);
    assert!(added.abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap() > 0.0);

    for folder in ["run/final/generator", "run/final/discriminator", "run/checkpoint-40"] {
        place.program(&["checkpoint", "verify", folder], "").ok();
    }
    let scored =
        place.program(&["evaluate", "--model", "run/final", "--data", "corpus.txt", "--json"], "").ok();
    let scored: Value = serde_json::from_str(&scored.stdout).unwrap();
    let loss = |scores: &Value| scores["eval_discriminator_loss"].as_f64().unwrap();
    assert!(loss(&scored) < 0.7, "{scored}");
    let told = place.program(&["predict", "--model", "run/final", "--input", "-"], "the cat sees\n").ok();
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(told["tokens"].as_array().unwrap().len(), told["replaced"].as_array().unwrap().len());
    // Trained on from both folders at a rate of almost nothing, the sum is what it was.
    let (rate, sample) = ("training.learning_rate=1e-12", DEBERTA[1]);
    let more = ["run.output_dir=more", "training.max_steps=1", MORE, rate, sample];
    let sets: Vec<&str> = more.iter().flat_map(|set| ["--set", set]).collect();
    let args = [&["pretrain", "--config", "config.yaml"][..], &sets].concat();
    let on = place.program(&args, "").ok();
    assert!(on.stderr.contains("the run begins with these weights"), "{}", on.stderr);
    let after = read("../more/final/discriminator/model.safetensors", word);
    // More positions than the folder's model has move no distance to another row.
    assert_eq!(place.json("../more/final/discriminator/config.json")["max_relative_positions"], 40);
    let moved = (after - discriminator).unwrap().abs().unwrap().max_all().unwrap();
    assert!(moved.to_scalar::<f32>().unwrap() < 1e-6, "{moved}");
}

#[test]
fn a_folder_with_the_tokenizer_of_published_ones_is_used_and_trained_further() {
    is_used_and_trained_further(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/deberta_v2_cls"));
}
