//! Tests of whole files through the loader: messages as users see them, origins, saving and resuming.

mod defaults;
mod files;
mod guidance;
mod hostile;

use std::path::{Path, PathBuf};

use super::*;
use base::error::Problems;
use base::families::{EncoderConfig, Family};

const SMALL: &str = "\
data:
  sources:
    - files: [corpus/*.txt.zst]
model:
  roberta:
    hidden_size: 128
    num_attention_heads: 2
";

/// Writes `text` to a file and loads it. Messages are returned without the name of the folder.
fn load(text: impl AsRef<[u8]>, sets: &[&str]) -> Result<Loaded<PretrainConfig>, String> {
    in_folder(text, |path| load_pretrain(path, &owned(sets)))
}

fn load_labelled(text: impl AsRef<[u8]>, sets: &[&str]) -> Result<Loaded<FinetuneConfig>, String> {
    in_folder(text, |path| load_finetune(path, &owned(sets)))
}

fn owned(sets: &[&str]) -> Vec<String> {
    sets.iter().map(|s| (*s).to_string()).collect()
}

fn in_folder<T>(text: impl AsRef<[u8]>, load: impl Fn(&Path) -> Result<T, Problems>) -> Result<T, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.yaml");
    std::fs::write(&path, text).expect("is writable");
    load(&path).map_err(|e| format!("error: {e}").replace(&format!("{}/", folder.path().display()), ""))
}

fn problems(text: impl AsRef<[u8]>, sets: &[&str]) -> String {
    load(text, sets).expect_err("is wrong")
}

#[test]
fn a_small_file_takes_the_defaults_for_the_rest() {
    let loaded = load(SMALL, &[]).expect("is right");
    assert_eq!(loaded.config.run.seed, 42);
    assert_eq!(loaded.config.precision.compute, ComputeChoice::Auto);
    assert_eq!(loaded.config.model().expect("has a family").encoder.max_position_embeddings, 514);
}

#[test]
fn bert_takes_the_defaults_of_bert() {
    let text = "data: {sources: [{files: [a.txt]}]}\nmodel:\n  bert:\n    hidden_size: 384\n";
    let encoder = load(text, &[]).expect("is right").config.model().expect("is BERT").encoder;
    assert_eq!(encoder, EncoderConfig { hidden_size: 384, ..EncoderConfig::of(Family::BERT) });
    let empty = load("data: {sources: [{files: [a.txt]}]}\nmodel:\n  bert:\n", &[]).expect("is right");
    assert_eq!(empty.config.model().expect("is BERT").encoder, EncoderConfig::of(Family::BERT));
}

#[test]
fn every_problem_is_reported_in_one_go() {
    let text = "\
run:
  seed: forty-two
  devise: cpu
data:
  sources:
    - files: corpus/*.txt
  max_seq_length: 600
model:
  roberta:
    hidden_size: 100
training:
  warmpu_steps: 10
  lr_scheduler_type: cosin
  max_steps: 100
  max_steps: 200
  adam_beta2: 1.5
  learning_rate: \"1e-3\"
";
    insta::assert_snapshot!(problems(text, &["mlm.mlm_probability=15", "training.foo=1"]), @"
    error: a.yaml:2:9: `run.seed` wants a whole number, not the text `forty-two`
      hint: write digits, or a unit such as `5k`, `2.5M` or `10B` (10^9)
    error: a.yaml:3:3: unknown key `devise` in `run`
      hint: did you mean `device`?
    error: a.yaml:6:14: `data.sources.0.files` wants a list, each item a text, not the text `corpus/*.txt`
      hint: write it as `[a, b]`, or one `- item` a line
    error: a.yaml:7:3: `data.max_seq_length` 600 is longer than the 512 positions of the model (`model.roberta.max_position_embeddings` 514, the first 2 of which RoBERTa leaves unused)
      hint: shorten the sequences or set `max_position_embeddings: 602`
    error: a.yaml:10:5: `model.roberta.hidden_size` 100 is not divisible by `num_attention_heads` 12
      hint: 100 is divisible by 1, 2, 4, 5, 10, 20, 25, 50
    error: a.yaml:12:3: unknown key `warmpu_steps` in `training`
      hint: did you mean `warmup_steps`?
    error: a.yaml:13:22: `training.lr_scheduler_type` cannot be `cosin`
      hint: did you mean `cosine`?
    error: a.yaml:15:3: key `max_steps` is given a second time, first in line 14
      hint: keep one of the two
    error: a.yaml:16:3: `training.adam_beta2` is 1.5, it must be at least 0 and below 1
      hint: `0.999` is usual
    error: a.yaml:17:18: `training.learning_rate` wants a number, not the text `1e-3`
      hint: remove the quotes
    error: --set mlm.mlm_probability: `mlm.mlm_probability` is 15, it must be above 0 and at most 1
      hint: 15 percent is written `0.15`
    error: --set training.foo: unknown key `foo` in `training`
      hint: `mlmtrain config schema` lists every key
    ");
}

#[test]
fn missing_keys_are_named_with_what_they_are_for() {
    insta::assert_snapshot!(problems("run:\n  seed: 1\n", &[]), @r#"
    error: a.yaml:1:1: `data` is missing
      hint: add `data`, the corpus and its split
    error: a.yaml:1:1: `model` is missing
      hint: add `model`, family and size of the model: a table named after the family, as `roberta:`
    "#);
    insta::assert_snapshot!(problems("", &[]), @r#"
    error: a.yaml:1:1: `data` is missing
      hint: add `data`, the corpus and its split
    error: a.yaml:1:1: `model` is missing
      hint: add `model`, family and size of the model: a table named after the family, as `roberta:`
    "#);
    insta::assert_snapshot!(load_labelled("data:\n  train_file: a.csv\n", &[]).expect_err("is wrong"), @"
    error: a.yaml:1:1: `model` is missing
      hint: add `model`, a model folder in the Hugging Face layout: a checkpoint of ours or anybody's
    error: a.yaml:1:1: `data.eval_file` is missing
      hint: name a .csv, .tsv, .jsonl or .parquet file, or split the training file with `data.eval_fraction: 0.1`
    ");
}

#[test]
fn the_error_for_a_key_in_the_wrong_table_names_the_right_one() {
    insta::assert_snapshot!(problems(format!("{SMALL}seed: 3\ntraining:\n  mlm_probability: 0.3\n  fp16: true\n"), &[]), @"
    error: a.yaml:8:1: unknown key `seed`
      hint: `seed` belongs elsewhere: `run.seed`
    error: a.yaml:10:3: unknown key `mlm_probability` in `training`
      hint: `mlm_probability` belongs elsewhere: `mlm.mlm_probability`
    error: a.yaml:11:3: unknown key `fp16` in `training`
      hint: write `precision.compute: f16`
    ");
}

#[test]
fn wrong_types() {
    let text = format!(
        "{SMALL}run:\n  output_dir: 2024\n  tensorboard: yes\n  threads: -1\n  device: CPU\n  seed:\ntraining:\n  learning_rate: .nan\n  \
         max_steps: 1.5\n  save_total_limit: 99999999999999999999\n  early_stopping_patience: 5000000000\nmlm: 3\ntokenizer: [a]\n"
    );
    insta::assert_snapshot!(problems(text, &[]), @r#"
    error: a.yaml:9:15: `run.output_dir` wants a text, not `2024`
      hint: put it in quotes
    error: a.yaml:10:16: `run.tensorboard` wants `true` or `false`, not the text `yes`
      hint: YAML 1.2 spells them `true` and `false`
    error: a.yaml:11:12: `run.threads` is -1, it must be at least 0
      hint: look for a stray minus sign
    error: a.yaml:12:11: `run.device` cannot be `CPU`
      hint: did you mean `cpu`?
    error: a.yaml:13:7: `run.seed` has no value
      hint: give it a value, or remove the key to take its default
    error: a.yaml:15:18: `training.learning_rate` wants a number, not `NaN`
      hint: infinity and `nan` mean nothing here
    error: a.yaml:16:14: `training.max_steps` wants a whole number, not `1.5`
      hint: write it in digits only
    error: a.yaml:17:21: `training.save_total_limit` wants a whole number, not `100000000000000000000`
      hint: write it in digits only
    error: a.yaml:18:28: `training.early_stopping_patience` is 5000000000, it can be at most 4294967295
      hint: look for stray digits
    error: a.yaml:19:6: `mlm` wants a table of keys, not `3`
      hint: write its keys below it, indented by two spaces
    error: a.yaml:20:12: `tokenizer` wants a table of keys, not a list
      hint: write its keys below it, indented by two spaces
    "#);
    insta::assert_snapshot!(problems("- a\n- b\n", &["run.seed=1"]), @r#"
    error: a.yaml:1:1: a configuration wants a table of keys, not a list
      hint: write its keys below it, indented by two spaces
    "#);
    insta::assert_snapshot!(problems("just a text", &[]), @r#"
    error: a.yaml:1:1: a configuration wants a table of keys, not the text `just a text`
      hint: write its keys below it, indented by two spaces
    "#);
}

#[test]
fn other_names_and_units_are_read() {
    let text = format!(
        "{SMALL}training:\n  warmup_ratio: 0.06\n  max_steps: 5k\n  activation_checkpointing: true\ntokenizer:\n  train_bytes: 64MB\n"
    );
    let loaded = load(text, &["data.max_length=64", "data.shard_tokens=1M"]).expect("is right").config;
    assert_eq!((loaded.training.warmup_steps, loaded.training.max_steps), (0.06, 5_000));
    assert!(loaded.training.gradient_checkpointing.is_on());
    assert_eq!((loaded.data.max_seq_length, loaded.data.shard_tokens), (64, 1_000_000));
    assert_eq!(loaded.tokenizer.train_bytes, 64_000_000);
    let both = format!("{SMALL}training:\n  warmup_ratio: 0.06\n  warmup_steps: 10\n");
    insta::assert_snapshot!(problems(both, &[]), @r#"
    error: a.yaml:10:3: key `warmup_steps` is given a second time, first in line 9
      hint: keep one of the two: `warmup_ratio` and `warmup_steps` mean the same
    "#);
}

#[test]
fn a_batch_size_is_a_number_or_auto() {
    let size = |sets: &[&str]| load(SMALL, sets).expect("is right").config.training;
    assert_eq!(
        size(&["training.per_device_train_batch_size=1k"]).per_device_train_batch_size,
        BatchSize::Rows(1000)
    );
    let auto = size(&["training.per_device_train_batch_size=auto", "training.train_batch_size=256"]);
    assert_eq!((auto.per_device_train_batch_size, auto.rows_per_update()), (BatchSize::Auto, 256));
    assert_eq!(serde_json::to_value(&auto).expect("is JSON")["per_device_train_batch_size"], "auto");
    insta::assert_snapshot!(problems(SMALL, &["training.per_device_train_batch_size=automatic"]), @r#"
    error: --set training.per_device_train_batch_size: `training.per_device_train_batch_size` wants a whole number or `auto`, not the text `automatic`
      hint: write digits, or `auto`
    "#);
    insta::assert_snapshot!(problems(SMALL, &["training.per_device_train_batch_size=auto"]), @r#"
    error: --set training.per_device_train_batch_size: `training.per_device_train_batch_size` is `auto`, but `training.train_batch_size` is missing: an update has no size
      hint: give `training.train_batch_size` the rows of an update; it is cut into micro-batches that fit
    "#);
}

#[test]
fn settings_override_the_file_and_know_their_keys() {
    let sets = [
        "training.max_steps=7",
        "training.max_steps=9",
        "data.sources.0.files=[b.txt, c.txt]",
        "run.sample_text=It is: <mask>",
        "training.warmup_steps=3",
    ];
    let loaded =
        load(format!("{SMALL}training:\n  max_steps: 5\n  warmup_ratio: 0.5\n"), &sets).expect("is right");
    assert_eq!(loaded.config.training.max_steps, 9);
    assert_eq!(loaded.config.training.warmup_steps.to_string(), "3");
    assert_eq!(loaded.config.data.sources[0].files, ["b.txt", "c.txt"]);
    assert_eq!(loaded.config.run.sample_text.as_deref(), Some("It is: <mask>"));
    assert_eq!(loaded.origins.of("training.max_steps"), "--set");
    let reset =
        load(format!("{SMALL}run:\n  sample_text: a <mask>\n"), &["run.sample_text=null"]).expect("is right");
    assert_eq!(reset.config.run.sample_text, None);
    let sets = [
        "training.max_step=1",
        "data.sources.3.files=[a]",
        "run.seed.x=1",
        "model.bert={}",
        "training.learning_rate=[1",
        "run.seed=",
    ];
    insta::assert_snapshot!(problems(SMALL, &sets), @r#"
    error: --set data.sources.3.files: `data.sources` has no item `3`
      hint: it has 1, numbered from 0; to give the whole list, write `[a, b]`
    error: --set model.bert: both `model.roberta` and `model.bert` are given
      hint: keep the one family to train
    error: --set run.seed: `run.seed` has no value
      hint: give it a value, or remove the key to take its default
    error: --set run.seed.x: `run.seed` is a whole number, it has no keys
      hint: set the key itself
    error: --set training.learning_rate: not valid YAML or JSON: unclosed bracket '['
      hint: quote the value for YAML and once more for the shell: `--set 'key="value"'`
    error: --set training.max_step: unknown key `max_step` in `training`
      hint: did you mean `max_steps`?
    "#);
    insta::assert_snapshot!(problems(SMALL, &["training.max_steps", "=3"]), @r#"
    error: --set: `training.max_steps` is not of the form `key=value`
      hint: write it like `--set training.max_steps=100`
    error: --set: `=3` is not of the form `key=value`
      hint: write it like `--set training.max_steps=100`
    "#);
}

#[test]
fn flags_can_stand_for_the_whole_file() {
    let flags = [
        Override::flag("--model", "model", "models/mini: \"v2\""),
        Override::flag("--train", "data.train_file", "train.csv"),
        Override::flag("--eval", "data.eval_file", "dev.csv"),
        Override::flag("--seeds", "seeds", vec![1_u64, 2]),
    ];
    let loaded = load_finetune_with(None, &flags).expect("is right");
    assert_eq!(loaded.config.model, PathBuf::from("models/mini: \"v2\""));
    assert_eq!(loaded.config.seeds, [1, 2]);
    assert_eq!(loaded.origins.of("data.train_file"), "--train");
    let wrong = load_finetune_with(
        None,
        &flags[..3]
            .iter()
            .cloned()
            .chain([Override::flag("--seeds", "seeds", vec![1_u64, 1])])
            .collect::<Vec<_>>(),
    );
    insta::assert_snapshot!(wrong.expect_err("is wrong"), @r#"
    --seeds: `seeds` names `1` twice
      hint: keep one of the two
    "#);
}

#[test]
#[expect(clippy::too_many_lines, reason = "all that `show` prints")]
fn show_names_the_origin_of_each_value() {
    let text = "model: models/mini\ndata:\n  train_file: a.csv\n  eval_file: b c.csv\n  labels: [\"no\", maybe]\ntraining:\n  learning_rate: 5e-5\n";
    let shown = in_folder(text, |path| {
        Ok(load_finetune(path, &owned(&["training.max_steps=10"]))?
            .show()
            .replace(path.to_str().expect("is UTF-8"), "a.yaml"))
    });
    insta::assert_snapshot!(shown.expect("is right"), @r#"
    run:
      output_dir: runs/default          # default
      seed: 42                          # default
      device: auto                      # default
      threads: 0                        # default
      usd_per_hour: null                # default
      budget_usd: null                  # default
      deadline: null                    # default
      tensorboard: true                 # default
      trackers: []                      # default
      prometheus_dir: null              # default
      notify_command: null              # default
      upload_to: null                   # default
      stop_within: "60s"                # default
      sample_text: null                 # default
    task: classify                      # default
    problem_type: null                  # default
    model: models/mini                  # a.yaml:1
    hidden_dropout_prob: null           # default
    attention_probs_dropout_prob: null  # default
    data:
      train_file: a.csv                 # a.yaml:3
      eval_file: "b c.csv"              # a.yaml:4
      eval_fraction: null               # default
      text_column: null                 # default
      text_pair_column: null            # default
      label_column: null                # default
      label_separator: null             # default
      labels: ["no", maybe]             # a.yaml:5
      max_train_fraction: null          # default
      max_train_samples: null           # default
      max_seq_length: null              # default
      split_special_tokens: true        # default
      token_column: 1                   # default
      tag_column: -1                    # default
      tag_scheme: auto                  # default
      strict: false                     # default
      on_bad_record: fail               # default
    seeds: []                           # default
    runs_at_once: 0                     # default
    training:
      per_device_train_batch_size: 8    # default
      train_batch_size: null            # default
      per_device_eval_batch_size: 8     # default
      gradient_accumulation_steps: 1    # default
      gradient_checkpointing: auto      # default
      phases: []                        # default
      batch_size_ramp:
        start_micro_batches: 1          # default
        steps: 0                        # default
      num_train_epochs: 3.0             # default
      max_steps: 10                     # --set
      max_train_time: null              # default
      optim: adamw                      # default
      learning_rate: 0.00005            # a.yaml:7
      lr_scheduler_type: linear         # default
      warmup_steps: 0.0                 # default
      lr_decay_steps: 0.1               # default
      decay_type: cosine                # default
      min_lr_ratio: 0.0                 # default
      lr_power: 1.0                     # default
      weight_decay: 0.0                 # default
      adam_beta1: 0.9                   # default
      adam_beta2: 0.999                 # default
      adam_epsilon: 1.0e-8              # default
      adam_bias_correction: true        # default
      muon:
        momentum: 0.95                  # default
        nesterov: true                  # default
        ns_steps: 5                     # default
        adjust_lr_fn: match_rms_adamw   # default
      layerwise_lr_decay: 1.0           # default
      head_learning_rate: null          # default
      frozen_layers: 0                  # default
      class_weights: null               # default
      label_smoothing_factor: 0.0       # default
      max_grad_norm: 1.0                # default
      loss_spike_threshold: 10.0        # default
      logging_steps: 500                # default
      eval_steps: 500                   # default
      save_steps: 500                   # default
      save_in_background: true          # default
      save_total_limit: 3               # default
      save_total_bytes: null            # default
      early_stopping_patience: null     # default
      metric_for_best_model: null       # default
      load_best_model_at_end: false     # default
    precision:
      compute: auto                     # default
      tf32: false                       # default
      weight_gradients: f32             # default
    cache:
      dir: null                         # default
      max_bytes: 100000000000           # default
    distributed:
      timeout: "10m"                    # default
      overlap: true                     # default
      wire: f32                         # default
      sum: tree                         # default
      shard_optimizer: false            # default
      check_replicas_steps: 1000        # default
    "#);
}

#[test]
fn json_is_the_same_configuration() {
    let yaml = load(SMALL, &[]).expect("is right").config;
    let json = r#"{"data": {"sources": [{"files": ["corpus/*.txt.zst"]}]}, "model": {"roberta": {"hidden_size": 128, "num_attention_heads": 2}}}"#;
    assert_eq!(load(json, &[]).expect("is right").config, yaml);
    assert_eq!(load(to_json(&yaml), &[]).expect("is right").config, yaml);
    assert_eq!(load(to_yaml(&yaml), &[]).expect("is right").config, yaml);
    assert_eq!(
        load(format!("\u{feff}{SMALL}"), &[]).expect("is right").config,
        yaml,
        "a byte order mark is no text"
    );
}

#[test]
fn the_kind_is_detected_from_the_keys() {
    for (text, kind) in [
        (SMALL, Kind::Pretrain),
        ("model: a\n", Kind::Finetune),
        ("data:\n  train_file: a\n", Kind::Finetune),
        ("", Kind::Pretrain),
        ("model: runs/a/final\ndata: {sources: [{files: [a.txt]}]}\n", Kind::Pretrain),
        ("model: {roberta: {}}\ndata: {train_file: a, eval_file: b}\n", Kind::Finetune),
    ] {
        let root = in_folder(text, |path| include::read(path).map_err(|e| Problems(vec![e])));
        assert_eq!(detect_kind::detect(&root.expect("is readable")), kind, "{text}");
    }
}

#[test]
fn resuming_accepts_some_changes_and_refuses_others() {
    let saved = load(SMALL, &[]).expect("is right").config;
    let continued = |sets: &[&str]| {
        let Loaded { mut config, origins } = load(SMALL, sets).expect("is right");
        let json = serde_json::to_value(&saved).expect("is JSON");
        crate::defaults::keep_derived(&mut config.training, origins.derived(), &json);
        config
    };
    let current = continued(&["training.max_steps=10", "run.threads=2"]);
    let changes = compare_for_resume(&saved, &current).expect("is allowed");
    assert_eq!(
        changes.iter().map(|c| c.path.as_str()).collect::<Vec<_>>(),
        ["run.threads", "training.max_steps"]
    );
    let sets = [
        "run.seed=1",
        "model.roberta.hidden_size=64",
        "data.sources.0.files=[b.txt]",
        "training.max_steps=3",
    ];
    let current = continued(&sets);
    insta::assert_snapshot!(compare_for_resume(&saved, &current).expect_err("is wrong"), @r#"
    run.seed: was `42` when this run began and is `1` now
      hint: restore the value to continue this run, or start a new one in another `run.output_dir`
    error: data.sources.0.files: was `["corpus/*.txt.zst"]` when this run began and is `["b.txt"]` now
      hint: restore the value to continue this run, or start a new one in another `run.output_dir`
    error: model.roberta.hidden_size: was `128` when this run began and is `64` now
      hint: restore the value to continue this run, or start a new one in another `run.output_dir`
    "#);
    let lamb = continued(&["training.optim=lamb", "training.learning_rate=1e-3", "training.adam_beta2=0.98"]);
    let other = load(SMALL, &["training.learning_rate=1e-3"]).expect("is right").config;
    insta::assert_snapshot!(compare_for_resume(&other, &lamb).expect_err("is wrong"), @r#"
    training.optim: was `"adamw"` when this run began and is `"lamb"` now
      hint: restore the value to continue this run, or start a new one in another `run.output_dir`
    "#);
    let bert = load("data: {sources: [{files: [corpus/*.txt.zst]}]}\nmodel: {bert: {}}\n", &[])
        .expect("is right")
        .config;
    assert!(compare_for_resume(&saved, &bert).is_err());
    // An update may have other micro-batches as long as it has the same number of rows, here 64.
    let cut =
        |sets: &[&str]| compare_for_resume(&saved, &load(SMALL, sets).expect("is right").config).is_ok();
    assert!(cut(&["training.per_device_train_batch_size=16", "training.gradient_accumulation_steps=4"]));
    assert!(cut(&["training.per_device_train_batch_size=auto", "training.train_batch_size=64"]));
    assert!(!cut(&["training.per_device_train_batch_size=16", "training.gradient_accumulation_steps=3"]));
    assert!(!cut(&["training.per_device_train_batch_size=auto", "training.train_batch_size=128"]));
    assert_eq!(diff(&saved, &saved), []);
}
