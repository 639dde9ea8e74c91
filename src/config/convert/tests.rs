//! Conversions of arguments as people write them.

use super::*;
use crate::load_any;

/// Converts arguments and checks that the loader accepts the YAML. Returns the YAML with single spaces
/// between words, and the notes.
fn converted(text: &str, purpose: Option<Purpose>) -> (String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("args.json");
    std::fs::write(&path, text).expect("is writable");
    let Converted { yaml, notes } = convert(&path, purpose).expect("is converted");
    std::fs::write(&path, &yaml).expect("is writable");
    assert_eq!(load_any(&path, &[]).map(|_| ()), Ok(()), "{yaml}");
    let lines = yaml.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    (lines.collect::<Vec<_>>().join("\n"), notes.join("\n"))
}

#[track_caller]
fn has(text: &str, all: &[&str]) {
    for part in all {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
}

const RUN_MLM: &str = r#"{
  "model_type": "roberta", "config_overrides": "hidden_size=256,num_hidden_layers=4,num_attention_heads=4",
  "tokenizer_name": "tokenizers/mine", "train_file": "data/fi.txt", "validation_split_percentage": 5,
  "line_by_line": true, "max_seq_length": 128, "mlm_probability": 0.2, "preprocessing_num_workers": 8,
  "output_dir": "out/mlm", "overwrite_output_dir": true, "do_train": true, "do_eval": true,
  "per_device_train_batch_size": 64, "gradient_accumulation_steps": 2, "learning_rate": 1e-4,
  "warmup_ratio": 0.06, "warmup_steps": 0, "weight_decay": 0.01, "num_train_epochs": 10,
  "fp16": true, "bf16": false, "lr_scheduler_type": "inverse_sqrt", "optim": "adamw_torch",
  "logging_steps": 50, "save_steps": 1000, "eval_strategy": "epoch", "save_total_limit": 2, "seed": 7,
  "report_to": ["tensorboard", "wandb"], "dataloader_num_workers": 4, "push_to_hub": false,
  "hub_token": null, "torch_compile": true, "adam_beta": 0.9
}"#;

#[test]
fn no_secret_of_the_arguments_is_shown_and_the_last_of_two_values_counts() {
    let (yaml, notes) = converted(
        r#"{"mlm_probability": 0.2, "hub_token": "planted-a1", "push_to_hub_token": "planted-b2",
        "use_auth_token": "planted-c3", "hub_model_id": "https://ann:planted-d4@host/x",
        "run_name": "https://host/x?planted-e5", "wandb_api_key1": "planted-f6", "learning_rate": 1e-4,
        "learning_rate": 2e-4, "include_num_input_tokens_seen": true,
        "tokenizer_name": "https://ann:planted-g7@host/a/"}"#,
        None,
    );
    assert!(!notes.contains("planted") && !yaml.contains("planted"), "{notes}\n{yaml}");
    has(&notes, &["hub_token: ***"]);
    has(&yaml, &["learning_rate: 0.0002", "path: \"https://***@host/a/\""]);
}

#[test]
fn run_mlm_becomes_a_configuration_of_pretraining() {
    let (yaml, notes) = converted(RUN_MLM, None);
    has(
        &yaml,
        &[
            "output_dir: out/mlm # was `output_dir`",
            "seed: 7 # was `seed`",
            "tensorboard: true # was `report_to`",
            "files: [data/fi.txt] # was `train_file`",
            "document: line # was `train_file`",
            "validation_fraction: 0.05 # was `validation_split_percentage`",
            "max_seq_length: 128 # was `max_seq_length`",
            "loader_workers: 4 # was `dataloader_num_workers`",
            "path: tokenizers/mine # was `tokenizer_name`",
            "roberta:",
            "hidden_size: 256 # was `config_overrides: hidden_size`",
            "mlm_probability: 0.2 # was `mlm_probability`",
            "per_device_train_batch_size: 64 # was `per_device_train_batch_size`",
            "learning_rate: 0.0001 # was `learning_rate`",
            "optim: adamw # was `optim`",
            "warmup_steps: 0.06 # was `warmup_ratio`",
            "eval_steps: 0 # was `eval_strategy`",
            "compute: f16 # was `fp16`",
        ],
    );
    assert!(!yaml.contains("lr_scheduler_type") && !yaml.contains("adam_beta1"), "{yaml}");
    has(
        &notes,
        &[
            "no place for `lr_scheduler_type: \"inverse_sqrt\"`: `training.lr_scheduler_type` cannot be",
            "not built; `cosine` and `warmup_stable_decay` come nearest",
            "no place for `eval_strategy: \"epoch\"`: here it is a number of steps, `training.eval_steps`",
            "no place for `report_to: [\"wandb\"]`",
            "no place for `preprocessing_num_workers: 8`",
            "no place for `torch_compile: true`: the kernels are compiled already",
            "no place for `do_train: true`: the command says what is done",
            "off or empty, left out: `bf16`, `push_to_hub`, `hub_token`",
            "not given: `adam_beta2`; `pretrain` chooses them",
            "not known here, left out: `adam_beta`",
        ],
    );
    assert!(!notes.contains("assumed"), "{notes}");
}

#[test]
fn run_ner_becomes_a_configuration_of_fine_tuning() {
    let arguments = "model_name_or_path: bert-base-cased\ntrain_file: train.json\nvalidation_file: dev.json\n\
                     test_file: test.json\ntext_column_name: tokens\nlabel_column_name: ner_tags\n\
                     return_entity_level_metrics: true\nmax_seq_length: 64\noutput_dir: out\nno_cuda: true\n\
                     save_strategy: \"no\"\nsave_steps: 500\n";
    let (yaml, notes) = converted(arguments, None);
    has(
        &yaml,
        &[
            "device: cpu # was `no_cuda`",
            "task: token-classify # assumed",
            "model: bert-base-cased # was `model_name_or_path`",
            "train_file: train.json # was `train_file`",
            "eval_file: dev.json # was `validation_file`",
            "text_column: tokens # was `text_column_name`",
            "label_column: ner_tags # was `label_column_name`",
            "save_steps: 0 # was `save_strategy`",
        ],
    );
    has(
        &notes,
        &[
            "assumed: `task: \"token-classify\"`",
            "assumed: `precision.compute: \"f32\"`: neither `fp16` nor `bf16` is on",
            "no place for `test_file: \"test.json\"`: `mlmtrain evaluate --data FILE`",
            "no place for `return_entity_level_metrics: true`: the scores of each type are always written",
        ],
    );
}

#[test]
fn run_glue_becomes_a_configuration_of_fine_tuning_with_notes_on_unused_arguments() {
    let arguments = r#"{"task_name": "stsb", "model_name_or_path": "m", "dataset_name": "glue",
        "label_smoothing_factor": 0.1, "max_train_samples": 100, "metric_for_best_model": "eval_pearson"}"#;
    let (yaml, notes) = converted(arguments, None);
    has(
        &yaml,
        &[
            "task: regression # was `task_name`",
            "train_file: train.csv # assumed",
            "eval_fraction: 0.1 # assumed",
            "max_train_samples: 100 # was `max_train_samples`",
            "metric_for_best_model: eval_pearson # was `metric_for_best_model`",
        ],
    );
    has(
        &notes,
        &[
            "no place for `dataset_name: \"glue\"`: download it",
            "no place for `label_smoothing_factor: 0.1`: `training.label_smoothing_factor` is given, but",
        ],
    );
    assert!(!yaml.contains("label_smoothing_factor"), "{yaml}");
}

#[test]
fn arguments_without_a_typical_script_are_for_the_given_purpose() {
    let text = r#"{"learning_rate": 2e-5, "per_gpu_train_batch_size": 4}"#;
    let (yaml, notes) = converted(text, None);
    has(
        &yaml,
        &[
            "per_device_train_batch_size: 4 # was `per_gpu_train_batch_size`",
            "learning_rate: 0.00002 # was `learning_rate`",
            "files: [corpus/*.txt] # assumed",
            "roberta: {} # assumed",
        ],
    );
    has(&notes, &["assumed: this is for `pretrain`; `--for` says it", "assumed: `data.sources:"]);
    let (yaml, notes) = converted(text, Some(Purpose::Finetune(FinetuneTask::Classify)));
    has(
        &yaml,
        &["model: models/mine # assumed", "train_file: train.csv # assumed", "task: classify # assumed"],
    );
    assert!(!notes.contains("--for"), "{notes}");
    let folder = r#"{"model_name_or_path": "m", "tokenizer_name": "t", "mlm_probability": 0.1}"#;
    let (yaml, notes) = converted(folder, None);
    has(&yaml, &["path: m # was `model_name_or_path`", "mlm_probability: 0.1"]);
    has(
        &notes,
        &["no place for `tokenizer_name: \"t\"`: architecture and tokenizer are those of `model.path`"],
    );
}

#[test]
fn files_without_arguments_are_refused() {
    for (text, message) in [
        ("[1]", "args.json: wants a table of arguments, not a list"),
        ("{}", "args.json: holds no arguments"),
        ("{\"a\": [1}", "not valid YAML or JSON"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("args.json");
        std::fs::write(&path, text).expect("is writable");
        has(&convert(&path, None).expect_err("is refused").to_string(), &[message]);
    }
}
