//! ELECTRA as its users meet it: two model folders, their scores, interruptions, and what comes after.

use std::fs;

use serde_json::Value;

use crate::workplace::{Workplace, send};

const SIGTERM: i32 = 15;

/// A small ELECTRA in the place of the configuration's model.
pub(super) const MODEL: &str = "model={electra: {embedding_size: 24, hidden_size: 32, num_hidden_layers: 2, \
     num_attention_heads: 2, intermediate_size: 64}}";

/// The configuration of the workplace with an ELECTRA in it.
const ELECTRA: [&str; 3] =
    [MODEL, "run.sample_text=the [MASK] sees [MASK] and the [MASK] sleeps.", "tokenizer.algorithm=wordpiece"];

const FILES: [&str; 4] = [
    "final/generator/model.safetensors",
    "final/discriminator/model.safetensors",
    "checkpoint-40/discriminator/config.json",
    "checkpoint-40/trainer/optimizer.safetensors",
];

pub(crate) fn sets<'a>(more: &[&'a str]) -> Vec<&'a str> {
    ELECTRA.iter().chain(more).copied().collect()
}

#[test]
fn a_run_leaves_two_folders_whose_scores_have_their_names() {
    let place = Workplace::new();
    let done = place.run(&sets(&[]), &[]).ok();
    assert!(done.stdout.contains("discriminator loss") && done.stdout.contains("mask 3:"), "{}", done.stdout);
    let lines: Vec<&str> = done.stdout.lines().map(str::trim).collect();
    assert!(lines[1].ends_with("(1 x generator loss + 50 x discriminator loss)"), "{}", done.stdout);
    let at = lines.iter().position(|line| line.starts_with("generator loss ")).unwrap();
    assert!(lines[at + 1].starts_with("unigram baseline "), "{}", done.stdout);
    let results = place.json("all_results.json");
    let value = |name: &str| results[name].as_f64().unwrap_or_else(|| panic!("{name} in {results}"));
    for share in ["generator_accuracy", "discriminator_accuracy", "replaced_precision", "replaced_recall"] {
        assert!((0.0..=1.0).contains(&value(&format!("eval_{share}"))), "{share}");
    }
    let equal = value("eval_sampled_equal_share");
    assert!(equal > 0.0 && equal < 1.0, "{equal}");
    let joint = value("eval_generator_loss") + 50.0 * value("eval_discriminator_loss");
    assert!((value("eval_loss") - joint).abs() < 1e-9);
    let baseline = value("eval_discriminator_baseline_loss");
    assert!(baseline > 0.1 && baseline < 0.7, "{baseline}");
    let class = |folder: &str| place.json(&format!("final/{folder}/config.json"))["architectures"][0].clone();
    assert_eq!(class("generator"), Value::from("ElectraForMaskedLM"));
    assert_eq!(class("discriminator"), Value::from("ElectraForPreTraining"));
    let first = place.series("train/generator_loss")[0].1;
    assert!(first > 4.0, "it begins near the logarithm of the vocabulary: {first}");
    assert_eq!(place.series("train/discriminator_loss").len(), 40);

    // What is done with `final`: the discriminator is scored, told with, and fine-tuned; the generator fills
    // in.
    let scored =
        place.program(&["evaluate", "--model", "run/final", "--data", "corpus.txt", "--json"], "").ok();
    let scored: Value = serde_json::from_str(&scored.stdout).unwrap();
    assert!(scored["eval_replaced_recall"].is_number() && scored["eval_discriminator_loss"].is_number());
    let texts = "the [MASK] sees the dog\nthe cat sees the dog\n";
    let told = place.program(&["predict", "--model", "run/final", "--input", "-"], texts).ok();
    let lines: Vec<Value> = told.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["masks"][0].as_array().unwrap().len(), 5);
    assert_eq!(lines[1]["tokens"].as_array().unwrap().len(), lines[1]["replaced"].as_array().unwrap().len());
    assert!(told.stderr.contains("`generator` fills in"), "{}", told.stderr);
    let alone = ["evaluate", "--model", "run/final/discriminator", "--data", "corpus.txt"];
    place.program(&alone, "").refused(1, &["holds a discriminator", "`generator/`"]);
    let rows = "the cat sleeps,0\nthe fox sleeps,1\n".repeat(12);
    fs::write(place.path("rows.csv"), format!("text,label\n{rows}")).unwrap();
    let arguments = [
        &[
            "finetune",
            "--task",
            "classify",
            "--model",
            "run/final",
            "--train",
            "rows.csv",
            "--eval",
            "rows.csv",
        ][..],
        &["--set", "training.max_steps=4", "--set", "training.layerwise_lr_decay=0.8"],
        &["--set", "data.max_seq_length=16", "--set", "run.output_dir=tuned"],
    ]
    .concat();
    let tuned = place.program(&arguments, "").ok();
    assert!(tuned.stderr.contains("`discriminator` is taken"), "{}", tuned.stderr);
    let config = fs::read_to_string(place.path("tuned/final/config.json")).unwrap();
    assert!(config.contains("ElectraForSequenceClassification") && config.contains("\"embedding_size\": 24"));
}

#[test]
fn an_interrupted_run_goes_on_with_the_same_bytes_in_every_type() {
    for more in [
        &["training.gradient_accumulation_steps=2", "training.per_device_train_batch_size=4"][..],
        &[
            "precision.compute=bf16",
            "training.gradient_checkpointing=true",
            "training.adam_bias_correction=false",
        ],
        &["precision.compute=f16", "precision.loss_scale.init_scale=1024"],
    ] {
        let (sets, place, undisturbed) = (sets(more), Workplace::new(), Workplace::new());
        undisturbed.run(&sets, &[]).ok();
        if let Some(child) = place.start_and_reach(11, &sets) {
            send(&child, SIGTERM);
            child.wait_with_output().expect("ends");
        }
        place.run(&sets, &[]).ok();
        assert_eq!(place.metrics(), undisturbed.metrics(), "{more:?}");
        for name in FILES {
            let read = |place: &Workplace| fs::read(place.run_path(name)).unwrap();
            assert!(read(&place) == read(&undisturbed), "{more:?}: `{name}` differs");
        }
    }
}

#[test]
fn micro_batches_and_checkpointed_layers_change_what_is_drawn_in_no_way() {
    let loss = |more: &[&str]| {
        let place = Workplace::new();
        place.run(&sets(more), &[]).ok();
        place.series("train/discriminator_loss")[0].1
    };
    let whole = loss(&["training.max_steps=1"]);
    let cut = loss(&[
        "training.max_steps=1",
        "training.gradient_accumulation_steps=4",
        "training.per_device_train_batch_size=2",
        "training.gradient_checkpointing=true",
    ]);
    assert!((whole - cut).abs() < 1e-5, "{whole} and {cut}");
}

#[test]
fn what_does_not_go_together_is_refused_with_its_key() {
    let place = Workplace::new();
    place.run(&["task=replaced_token_detection"], &[]).refused(2, &["task", "RoBERTa"]);
    place.run(&["rtd.generator_weight=2"], &[]).refused(2, &["rtd.generator_weight", "masked_lm"]);
    place.run(&["model.roberta.embedding_size=16"], &[]).refused(2, &["embedding_size", "RoBERTa"]);
    let odd = sets(&["rtd.generator_hidden_size=30", "rtd.generator_num_attention_heads=4"]);
    place.run(&odd, &[]).refused(2, &["generator_hidden_size", "not divisible"]);
    place.run(&sets(&["training.layerwise_lr_decay=0"]), &[]).refused(2, &["layerwise_lr_decay"]);
}

#[test]
fn electra_as_a_masked_language_model_is_one_folder() {
    let place = Workplace::new();
    place.run(&sets(&["task=masked_lm", "training.max_steps=3"]), &[]).ok();
    let config = place.json("final/config.json");
    assert_eq!(config["architectures"][0], Value::from("ElectraForMaskedLM"));
    assert!(place.json("all_results.json")["eval_perplexity"].is_number());
}
