//! Arguments as people have them, and what becomes of them.

use super::*;
use crate::config::load_any;

/// The YAML and the notes; the YAML is right.
fn converted(text: &str, purpose: Option<Purpose>) -> (String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("args.json");
    std::fs::write(&path, text).expect("is writable");
    let Converted { yaml, notes } = convert(&path, purpose).expect("is converted");
    std::fs::write(&path, &yaml).expect("is writable");
    assert_eq!(load_any(&path, &[]).map(|_| ()), Ok(()), "{yaml}");
    (yaml.lines().skip(1).collect::<Vec<_>>().join("\n"), notes.join("\n"))
}

const RUN_MLM: &str = r#"{
  "model_type": "roberta", "config_overrides": "hidden_size=256,num_hidden_layers=4,num_attention_heads=4",
  "tokenizer_name": "tokenizers/mine", "train_file": "data/fi.txt", "validation_split_percentage": 5,
  "line_by_line": true, "max_seq_length": 128, "mlm_probability": 0.2, "preprocessing_num_workers": 8,
  "output_dir": "out/mlm", "overwrite_output_dir": true, "do_train": true, "do_eval": true,
  "per_device_train_batch_size": 64, "gradient_accumulation_steps": 2, "learning_rate": 1e-4,
  "warmup_ratio": 0.06, "warmup_steps": 0, "weight_decay": 0.01, "num_train_epochs": 10, "fp16": true, "bf16": false,
  "lr_scheduler_type": "inverse_sqrt", "optim": "adamw_torch", "logging_steps": 50, "save_steps": 1000,
  "eval_strategy": "epoch", "save_total_limit": 2, "seed": 7, "report_to": ["tensorboard", "wandb"],
  "dataloader_num_workers": 4, "push_to_hub": false, "hub_token": null, "torch_compile": true, "adam_beta": 0.9
}"#;

#[test]
fn run_mlm_becomes_a_configuration_of_pretraining() {
    let (yaml, notes) = converted(RUN_MLM, None);
    insta::assert_snapshot!(yaml, @"");
    insta::assert_snapshot!(notes, @"");
}

#[test]
fn run_ner_and_run_glue_become_configurations_of_fine_tuning() {
    let ner = "model_name_or_path: bert-base-cased\ntrain_file: train.json\nvalidation_file: dev.json\ntest_file: test.json\n\
               text_column_name: tokens\nlabel_column_name: ner_tags\nreturn_entity_level_metrics: true\nmax_seq_length: 64\n\
               output_dir: out\nno_cuda: true\nsave_strategy: \"no\"\nsave_steps: 500\n";
    let (yaml, notes) = converted(ner, None);
    insta::assert_snapshot!(yaml, @"");
    insta::assert_snapshot!(notes, @"");
    let glue = r#"{"task_name": "stsb", "model_name_or_path": "m", "dataset_name": "glue", "label_smoothing_factor": 0.1,
                   "max_train_samples": 100, "metric_for_best_model": "eval_pearson"}"#;
    let (yaml, notes) = converted(glue, None);
    insta::assert_snapshot!(yaml, @"");
    insta::assert_snapshot!(notes, @"");
}

#[test]
fn arguments_that_name_no_script_are_for_what_is_said() {
    let text = r#"{"learning_rate": 2e-5, "per_gpu_train_batch_size": 4}"#;
    let (yaml, notes) = converted(text, None);
    insta::assert_snapshot!(yaml, @"");
    insta::assert_snapshot!(notes, @"");
    let (yaml, notes) = converted(text, Some(Purpose::Finetune(FinetuneTask::Classify)));
    insta::assert_snapshot!(yaml, @"");
    insta::assert_snapshot!(notes, @"");
    let (yaml, _) =
        converted(r#"{"model_name_or_path": "m", "tokenizer_name": "t", "mlm_probability": 0.1}"#, None);
    insta::assert_snapshot!(yaml, @"");
}

#[test]
fn what_holds_no_arguments_is_refused() {
    let refused = |text: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("args.json");
        std::fs::write(&path, text).expect("is writable");
        let problems = convert(&path, None).expect_err("is refused").to_string();
        problems.replace(&format!("{}/", folder.path().display()), "")
    };
    insta::assert_snapshot!(refused("[1]"), @"");
    insta::assert_snapshot!(refused("{}"), @"");
    insta::assert_snapshot!(refused("{\"a\": }x"), @"");
}
