//! Tests of the defaults of pretraining that depend on the model and the steps.

use super::*;
use crate::defaults;

/// Returns the lines of `config show` for these keys of `training`.
fn shown(loaded: &Loaded<PretrainConfig>, keys: &[&str]) -> Vec<String> {
    let text = loaded.show();
    let lines = text.lines().skip_while(|line| *line != "training:");
    lines
        .filter(|line| keys.iter().any(|key| line.trim_start().starts_with(&format!("{key}:"))))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn defaults_that_depend_on_the_model_are_shown_with_their_reasons() {
    let keys = [
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "learning_rate",
        "warmup_steps",
        "weight_decay",
        "adam_beta2",
    ];
    let loaded = load(SMALL, &["training.max_steps=50000"]).expect("is right");
    insta::assert_snapshot!(shown(&loaded, &keys).join("\n"), @r"
    per_device_train_batch_size: 32 # default: 50000 steps
    gradient_accumulation_steps: 16 # default: 50000 steps
    learning_rate: 0.00141 # default: width 128
    warmup_steps: 0.05 # default: random weights
    weight_decay: 0.01 # default: pretraining
    adam_beta2: 0.98 # default: pretraining
    ");
    let summary = defaults::summary(&loaded.config.training, loaded.origins.derived());
    insta::assert_snapshot!(summary.expect("something was not given"), @"defaults for this model: learning_rate 0.00141 (width 128), warmup_steps 0.05, weight_decay 0.01, adam_beta2 0.98, per_device_train_batch_size 32 (50000 steps), gradient_accumulation_steps 16 (50000 steps)");
    let batch = "per_device_train_batch_size gradient_accumulation_steps";
    let (keys, training) = derived(&["training.learning_rate=1e-3", "training.warmup_ratio=0.1"]);
    assert_eq!(keys, format!("weight_decay adam_beta2 {batch}"));
    assert_eq!((training.rows_per_update(), training.rows_at_once()), (64, 32));
    let (keys, training) = derived(&["training.optim=lamb", "training.gradient_accumulation_steps=2"]);
    assert_eq!(keys, "learning_rate warmup_steps weight_decay");
    assert_eq!((training.rows_per_update(), training.learning_rate.to_bits()), (16, 5e-5_f64.to_bits()));
    let (keys, lion) = derived(&["training.optim=lion", "training.gradient_accumulation_steps=2"]);
    assert_eq!(keys, "learning_rate warmup_steps weight_decay adam_beta2");
    assert_eq!(
        [lion.learning_rate, lion.weight_decay, lion.adam_beta2].map(|value| value.to_string()),
        ["0.000141", "0.1", "0.99"]
    );
    let (keys, stable) = derived(&["training.optim=stable_adamw", "training.gradient_accumulation_steps=2"]);
    assert_eq!(keys, "learning_rate warmup_steps weight_decay adam_beta2");
    assert_eq!(stable.learning_rate.to_string(), "0.00141");
    let (keys, muon) = derived(&["training.optim=muon", "training.gradient_accumulation_steps=2"]);
    assert_eq!(keys, "learning_rate warmup_steps weight_decay adam_beta2");
    assert_eq!(muon.learning_rate.to_string(), "0.00141");
    let original = ["training.optim=muon", "training.muon.adjust_lr_fn=original"];
    let rate = derived(&original).1.learning_rate;
    assert_eq!(rate.to_bits(), 5e-5_f64.to_bits(), "the rates of AdamW do not hold");
    assert!(!derived(&["training.lr_scheduler_type=constant"]).0.contains("warmup_steps"));
    let continued =
        load("data: {sources: [{files: [a.txt]}]}\nmodel: {path: models/mini}\n", &[]).expect("is right");
    assert_eq!(continued.config.training, TrainingConfig::default(), "weights of a folder");
    assert!(continued.origins.derived().is_empty());
    let electra = SMALL.replace("roberta", "electra");
    let electra = load(electra, &[]).expect("is right");
    let reason = &electra.origins.derived()[0].from;
    assert_eq!(
        (format!("{}", electra.config.training.learning_rate), reason.as_str()),
        ("0.00071".to_string(), "width 128")
    );
}

/// Loads [`SMALL`] with these settings; returns the names of the derived keys, and the section `training`.
fn derived(sets: &[&str]) -> (String, TrainingConfig) {
    let loaded = load(SMALL, sets).expect("is right");
    let derived = loaded.origins.derived().iter().map(|derived| derived.key).collect::<Vec<_>>();
    (derived.join(" "), loaded.config.training)
}

#[test]
fn a_resumed_run_keeps_its_derived_values_unless_they_are_given() {
    let loaded = load(SMALL, &["training.adam_beta2=0.97"]).expect("is right");
    let mut training = loaded.config.training;
    let saved = serde_json::json!({"training": {
        "learning_rate": 5e-5, "adam_beta2": 0.9, "weight_decay": 0.0, "gradient_accumulation_steps": 3
    }});
    defaults::keep_derived(&mut training, loaded.origins.derived(), &saved);
    assert_eq!(
        [training.learning_rate, training.adam_beta2, training.weight_decay].map(|value| value.to_string()),
        ["0.00005", "0.97", "0"]
    );
    assert_eq!((training.gradient_accumulation_steps, training.rows_at_once()), (3, 32));
}
