//! `training.weight_average` as its users meet it: what is written, scored and resumed.

use std::fs;

use candle_core::Device;
use serde_json::Value;

use crate::material::examples;
use crate::pretrain::electra;
use crate::pretrain::family::comes_to_the_same_bytes;
use crate::workplace::Workplace;

const AVERAGED: &str = "training.weight_average={decay: 0.9, start_step: 3, every: 2}";

/// DeBERTa as v3 is trained: its folders contain sums of parameters.
const V3: [&str; 3] = [
    "model={deberta-v2: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, \
     intermediate_size: 48, max_position_embeddings: 40, position_buckets: 12, initializer_range: 0.05}}",
    "run.sample_text=the [MASK] sees [MASK] and the [MASK] sleeps.",
    "task=replaced_token_detection",
];

#[test]
fn folders_hold_the_average_and_the_weights_train_on_as_they_would_without_it() {
    let (plain, averaged) = (Workplace::new(), Workplace::new());
    plain.run(&[], &[]).ok();
    averaged.run(&[AVERAGED], &[]).ok();
    assert_eq!(plain.series("train/loss"), averaged.series("train/loss"));
    let read = |place: &Workplace, name: &str| fs::read(place.run_path(name)).unwrap();
    let moments = "checkpoint-40/trainer/optimizer.safetensors";
    assert!(read(&plain, moments) == read(&averaged, moments));
    assert!(!plain.run_path("checkpoint-40/trainer/weights.safetensors").exists());

    let tensors = |place: &Workplace, name: &str| {
        candle_core::safetensors::load(place.run_path(name), &Device::Cpu).unwrap()
    };
    let values = |tensor: &candle_core::Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    // The flat buffer begins with the first parameter by name.
    let trained = values(&tensors(&averaged, "checkpoint-40/trainer/weights.safetensors")["weights"]);
    let without = tensors(&plain, "checkpoint-40/model.safetensors");
    let first = without.keys().min().unwrap();
    let first = values(&without[first]);
    assert_eq!(trained[..first.len()], first);
    let model = "model.safetensors";
    assert!(read(&averaged, &format!("final/{model}")) == read(&averaged, &format!("checkpoint-40/{model}")));
    assert!(read(&averaged, &format!("final/{model}")) != read(&plain, &format!("final/{model}")));
    let losses =
        [&plain, &averaged].map(|place| place.json("all_results.json")["eval_loss"].as_f64().unwrap());
    let apart = (losses[0] - losses[1]).abs();
    assert!(apart > 0.0 && apart < 0.5, "{losses:?}");

    let verify = averaged.program(&["checkpoint", "verify", "run"], "").ok().stdout;
    assert_eq!(verify.lines().filter(|line| line.starts_with("ok    ")).count(), 6, "{verify}");
    averaged.run(&[AVERAGED], &[]).ok();
}

#[test]
fn an_interrupted_run_comes_to_the_same_bytes() {
    let bf16 = ["precision.compute=bf16", "training.gradient_accumulation_steps=2"];
    let f16 = ["precision.compute=f16", "precision.loss_scale.init_scale=1024"];
    for more in [&bf16[..], &f16, &electra::sets(&[]), &V3] {
        comes_to_the_same_bytes(&[more, &[AVERAGED]].concat());
    }
}

#[test]
fn a_run_keeps_the_average_with_which_it_began() {
    let place = Workplace::new();
    place.run(&[AVERAGED, "training.max_steps=8"], &[]).ok();
    let more = "training.max_steps=16";
    let changed = place.run(&[AVERAGED, more, "training.weight_average.decay=0.5"], &[]);
    changed.refused(2, &["training.weight_average.decay: was `0.9` when this run began and is `0.5` now"]);
    place.run(&[more], &[]).refused(2, &["training.weight_average: was `{"]);
    place.run(&[AVERAGED, more], &[]).ok();
    let plain = Workplace::new();
    plain.run(&["training.max_steps=8"], &[]).ok();
    plain
        .run(&[AVERAGED, more], &[])
        .refused(2, &["training.weight_average: was absent when this run began"]);
}

#[test]
fn values_that_make_no_average_are_refused_with_their_key() {
    let place = Workplace::new();
    for (set, words) in [
        ("{decay: 1}", "`training.weight_average.decay` is 1, it must be at least 0 and below 1"),
        ("{every: 0}", "`training.weight_average.every` is 0, it must be at least 1"),
        ("{start_step: 40}", "begins after step 41, but `training.max_steps` is 40"),
        ("{decay_rate: 0.9}", "unknown key `decay_rate`"),
    ] {
        place.run(&[&format!("training.weight_average={set}")], &[]).refused(2, &[words]);
    }
    place.run(&["training.ema_decay=0.9"], &[]).refused(2, &["training.weight_average"]);
}

#[test]
fn a_plan_counts_one_more_value_of_each_parameter() {
    let place = Workplace::new();
    let plan = |more: &[&str]| {
        let all = [&["plan", "--config", "config.yaml", "--json", "--device", "h100"], more].concat();
        let found: Value = serde_json::from_str(&place.program(&all, "").ok().stdout).unwrap();
        let parameters = found["num_parameters"].as_u64().unwrap();
        (parameters, found["devices"][0]["memory_parts"]["state_bytes"].as_u64().unwrap())
    };
    let (parameters, plain) = plan(&[]);
    assert_eq!(plan(&["--set", AVERAGED]).1, plain + 4 * parameters);
    let dry = place.run(&[AVERAGED], &["--dry-run"]).ok();
    let shown = format!("{}{}", dry.stdout, dry.stderr);
    assert!(shown.contains("of values, their average, gradients and moments"), "{shown}");
}

#[test]
fn a_classifier_is_averaged_as_well() {
    let place = Workplace::new();
    place.run(&["training.max_steps=20", "run.sample_text=null"], &[]).ok();
    fs::write(place.path("train.csv"), examples(160)).unwrap();
    fs::write(place.path("dev.csv"), examples(40)).unwrap();
    let flags =
        "finetune --task classify --model run/final --train train.csv --eval dev.csv --output-dir cls";
    let sets = [
        AVERAGED,
        "training.learning_rate=0.005",
        "training.num_train_epochs=6",
        "data.max_seq_length=32",
        "precision.compute=f32",
    ];
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    place.program(&flags.split(' ').chain(sets).collect::<Vec<_>>(), "").ok();
    let results: Value =
        serde_json::from_slice(&fs::read(place.path("cls/all_results.json")).unwrap()).unwrap();
    assert!(results["eval_accuracy"].as_f64().unwrap() > 0.9, "{results}");
    let evaluate = ["evaluate", "--model", "cls/final", "--data", "dev.csv", "--json"];
    let scored: Value = serde_json::from_str(&place.program(&evaluate, "").ok().stdout).unwrap();
    let [loss, again] = [&results, &scored].map(|scores| scores["eval_loss"].as_f64().unwrap());
    assert!((loss - again).abs() < 1e-6, "{loss} {again}");
}
