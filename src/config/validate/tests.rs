//! Tests with one wrong value at a time: it is found, named and explained, and the right ones are accepted.

use std::path::PathBuf;

use crate::validate::{validate_finetune, validate_pretrain};
use crate::{
    BatchSize, ComputeChoice, FinetuneConfig, FinetuneTask, Format, LossScaleConfig, OptimizerType,
    PrecisionConfig, PretrainConfig, SchedulerType, SourceConfig, TagScheme, TrainingConfig,
};
use base::families::{EncoderConfig, Family, ModelConfig};

fn pretrain() -> PretrainConfig {
    serde_json::from_value(
        serde_json::json!({"data": {"sources": [{"files": ["a.txt"]}]}, "model": {"roberta": {}}}),
    )
    .expect("is right")
}

fn finetune() -> FinetuneConfig {
    serde_json::from_value(
        serde_json::json!({"model": "m", "data": {"train_file": "a.csv", "eval_file": "b.csv"}}),
    )
    .expect("is right")
}

/// Returns the problems after one change, a line each, without hints.
fn found(change: impl FnOnce(&mut PretrainConfig)) -> String {
    let mut config = pretrain();
    change(&mut config);
    validate_pretrain(&config).iter().map(|p| p.message.clone()).collect::<Vec<_>>().join("\n")
}

fn found_in_finetune(change: impl FnOnce(&mut FinetuneConfig)) -> String {
    let mut config = finetune();
    change(&mut config);
    validate_finetune(&config).iter().map(|p| p.message.clone()).collect::<Vec<_>>().join("\n")
}

fn encoder(config: &mut PretrainConfig) -> &mut EncoderConfig {
    &mut config.model.tables[0].encoder
}

fn bert() -> ModelConfig {
    ModelConfig { family: Family::BERT, encoder: EncoderConfig::of(Family::BERT) }
}

#[test]
fn defaults_are_right() {
    assert_eq!(found(|_| {}), "");
    assert_eq!(found_in_finetune(|_| {}), "");
    assert_eq!(
        found(|c| {
            c.model.tables[0] = bert();
            c.data.max_seq_length = 512;
        }),
        ""
    );
}

#[test]
fn the_model() {
    insta::assert_snapshot!(found(|c| encoder(c).num_attention_heads = 7), @"`model.roberta.hidden_size` 768 is not divisible by `num_attention_heads` 7");
    insta::assert_snapshot!(found(|c| encoder(c).num_attention_heads = 0), @"`model.roberta.num_attention_heads` is 0, it must be at least 1");
    insta::assert_snapshot!(found(|c| encoder(c).hidden_size = 1 << 40), @"`model.roberta.hidden_size` is 1099511627776, it can be at most 65536");
    insta::assert_snapshot!(found(|c| c.data.max_seq_length = 513), @"`data.max_seq_length` 513 is longer than the 512 positions of the model (`model.roberta.max_position_embeddings` 514, the first 2 of which RoBERTa leaves unused)");
    assert_eq!(found(|c| c.data.max_seq_length = 512), "");
    insta::assert_snapshot!(found(|c| encoder(c).vocab_size = 20_000), @"`model.roberta.vocab_size` 20000 is smaller than `tokenizer.vocab_size` 30000");
    assert_eq!(
        found(|c| {
            encoder(c).vocab_size = 20_000;
            c.tokenizer.path = Some("t".into());
        }),
        ""
    );
    insta::assert_snapshot!(found(|c| encoder(c).pad_token_id = 30_000), @"`model.roberta.pad_token_id` 30000 leaves none of the 514 positions: RoBERTa counts them from one past it");
    insta::assert_snapshot!(found(|c| encoder(c).hidden_dropout_prob = 10.0), @"`model.roberta.hidden_dropout_prob` is 10, it must be at least 0 and below 1");
    insta::assert_snapshot!(found(|c| encoder(c).layer_norm_eps = f64::NAN), @"`model.roberta.layer_norm_eps` is no finite number");
    insta::assert_snapshot!(found(|c| c.model.tables.clear()), @"`model` names no family");
    insta::assert_snapshot!(found(|c| c.model.tables.push(bert())), @"both `model.roberta` and `model.bert` are given");
    assert_eq!(
        found(|c| {
            encoder(c).hidden_size = 45;
            encoder(c).num_attention_heads = 15;
        }),
        "",
        "an odd head size is fine"
    );
}

#[test]
fn rotary_positions_and_local_layers() {
    assert_eq!(found_in_family(Family::MODERNBERT, 8192, |_| {}), "");
    insta::assert_snapshot!(found_in_family(Family::MODERNBERT, 8192, |e| e.local_attention = 1), @"`model.modernbert.local_attention` is 1, it must be at least 2");
    insta::assert_snapshot!(found_in_family(Family::MODERNBERT, 8192, |e| e.global_attn_every_n_layers = 0), @"`model.modernbert.global_attn_every_n_layers` is 0, it must be at least 1");
    insta::assert_snapshot!(found_in_family(Family::MODERNBERT, 8192, |e| e.global_rope_theta = 0.0), @"`model.modernbert.global_rope_theta` is 0, it must lie between 1e-9 and 1e12");
    insta::assert_snapshot!(found_in_family(Family::MODERNBERT, 8192, |e| e.local_rope_theta = f64::INFINITY), @"`model.modernbert.local_rope_theta` is no finite number");
    insta::assert_snapshot!(found_in_family(Family::MODERNBERT, 8192, |e| e.num_attention_heads = 256), @"`model.modernbert.hidden_size` 768 by `num_attention_heads` 256 makes heads of 3, and rotary positions turn pairs");
    insta::assert_snapshot!(found_in_family(Family::MODERNBERT, 8192, |e| e.layer_norm_eps = 0.0), @"`model.modernbert.norm_eps` is 0, it must be above 0 and at most 1");
    insta::assert_snapshot!(found_in_family(Family::MODERNBERT, 8192, |e| e.attention_probs_dropout_prob = 1.0), @"`model.modernbert.attention_dropout` is 1, it must be at least 0 and below 1");
    insta::assert_snapshot!(found_in_family(Family::MODERNBERT, 8192, |e| e.max_position_embeddings = 8191), @"`data.max_seq_length` 8192 is longer than the 8191 positions of the model (`model.modernbert.max_position_embeddings` 8191)");
}

#[test]
fn relative_positions_and_their_buckets() {
    assert_eq!(found_in_family(Family::DEBERTA_V2, 128, |_| {}), "");
    assert_eq!(
        found_in_family(Family::DEBERTA_V2, 128, |e| (e.position_buckets, e.type_vocab_size) = (0, 2)),
        ""
    );
    insta::assert_snapshot!(found_in_family(Family::DEBERTA_V2, 128, |e| e.position_buckets = 1), @"`model.deberta-v2.position_buckets` 1 does not go with distances up to 512: half of the buckets are for one distance each, the others for farther ones");
    insta::assert_snapshot!(found_in_family(Family::DEBERTA_V2, 128, |e| e.max_relative_positions = 129), @"`model.deberta-v2.position_buckets` 256 does not go with distances up to 129: half of the buckets are for one distance each, the others for farther ones");
    insta::assert_snapshot!(found_in_family(Family::DEBERTA_V2, 128, |e| e.pooler_dropout = 1.0), @"`model.deberta-v2.pooler_dropout` is 1, it must be at least 0 and below 1");
    insta::assert_snapshot!(found_in_family(Family::DEBERTA_V2, 128, |e| e.classifier_dropout = Some(1.0)), @"`model.deberta-v2.cls_dropout` is 1, it must be at least 0 and below 1");
}

#[test]
fn the_data() {
    insta::assert_snapshot!(found(|c| c.data.sources.clear()), @"`data.sources` is empty, there is nothing to train on");
    insta::assert_snapshot!(found(|c| c.data.sources[0].files.clear()), @"`data.sources.0.files` is empty");
    insta::assert_snapshot!(found(|c| c.data.sources[0].files = vec!["a[".to_string(), String::new()]), @"
    `data.sources.0.files.1` is empty
    `a[` is not a file pattern: invalid range pattern
    ");
    insta::assert_snapshot!(found(|c| c.data.validation_fraction = 0.0), @"`data.validation_fraction` is 0, it must be above 0 and at most 0.5");
    insta::assert_snapshot!(found(|c| c.data.validation_fraction = f64::NAN), @"`data.validation_fraction` is no finite number");
    insta::assert_snapshot!(found(|c| c.data.max_seq_length = 2), @"`data.max_seq_length` is 2, it must be at least 3");
    insta::assert_snapshot!(found(|c| c.tokenizer.vocab_size = 260), @"`tokenizer.vocab_size` is 260, smaller than the alphabet");
    assert_eq!(found(|c| c.tokenizer.vocab_size = 261), "");
    insta::assert_snapshot!(found(|c| c.mlm.mlm_probability = 15.0), @"`mlm.mlm_probability` is 15, it must be above 0 and at most 1");
    insta::assert_snapshot!(found(|c| c.mlm.random_replace_prob = Some(0.3)), @"`mlm.mask_replace_prob` 0.8 and `mlm.random_replace_prob` 0.3 are more than 1 together");
    assert_eq!(
        found(|c| {
            c.mlm.mask_replace_prob = Some(0.9);
            c.mlm.random_replace_prob = Some(0.1);
        }),
        ""
    );
    insta::assert_snapshot!(found(|c| c.run.sample_text = Some("no mask here".to_string())), @"`run.sample_text` has no mask to fill in");
    insta::assert_snapshot!(found(|c| c.run.output_dir = PathBuf::new()), @"`run.output_dir` is empty");
}

#[test]
fn the_sources() {
    fn source(change: impl FnOnce(&mut SourceConfig)) -> String {
        found(|c| change(&mut c.data.sources[0]))
    }
    for weight in [0.001, 0.5, 2.0, 1000.0] {
        assert_eq!(source(|s| s.weight = weight), "");
    }
    insta::assert_snapshot!(source(|s| s.weight = 0.0), @"`data.sources.0.weight` is 0, and no phase takes the source");
    insta::assert_snapshot!(source(|s| s.weight = -1.0), @"`data.sources.0.weight` is -1, it must lie between 0 and 1000");
    insta::assert_snapshot!(source(|s| s.weight = f64::NAN), @"`data.sources.0.weight` is no finite number");
    insta::assert_snapshot!(source(|s| s.weight = f64::INFINITY), @"`data.sources.0.weight` is no finite number");
    insta::assert_snapshot!(source(|s| s.weight = 1000.5), @"`data.sources.0.weight` is 1000.5, it must lie between 0 and 1000");
    insta::assert_snapshot!(source(|s| s.field = String::new()), @"`data.sources.0.field` is empty");
    insta::assert_snapshot!(source(|s| s.title_field = Some(String::new())), @"`data.sources.0.title_field` is empty");
    insta::assert_snapshot!(source(|s| s.title_field = Some("text".to_string())), @"`data.sources.0.title_field` and `data.sources.0.field` both name `text`");
    insta::assert_snapshot!(source(|s| { s.title_field = Some("title".to_string()); s.format = Format::Text }), @"`data.sources.0.title_field` is given, but plain text has no fields");
    assert_eq!(source(|s| s.title_field = Some("title".to_string())), "");
    assert_eq!(source(|s| s.separator = Some(";".to_string())), "");
    insta::assert_snapshot!(source(|s| s.separator = Some("::".to_string())), @"`data.sources.0.separator` is `::`, it must be one ASCII character, no quote and no line end");
    insta::assert_snapshot!(source(|s| { s.separator = Some(";".to_string()); s.format = Format::Tsv }), @"`data.sources.0.separator` is given, but the format is not `csv`");
    insta::assert_snapshot!(source(|s| s.name = Some(" ".to_string())), @"`data.sources.0.name` is empty");
    insta::assert_snapshot!(source(|s| { s.files = vec!["-".to_string()]; s.format = Format::Parquet }), @"`data.sources.0.files.0` is standard input, which cannot be Parquet: its index stands at the end");
    insta::assert_snapshot!(source(|s| s.files = vec!["-".to_string(), "-".to_string()]), @"`data.sources.0.files.0` and `data.sources.0.files.1` both name standard input, which can be read only once");
    assert_eq!(source(|s| s.files = vec!["-".to_string()]), "");
    insta::assert_snapshot!(found_in_names(Some("news"), Some("news")), @"`data.sources.1.name` and `data.sources.0.name` are both `news`");
    assert_eq!(found_in_names(Some("news"), Some("web")), "");
    assert_eq!(found_in_names(None, None), "", "names that are not given are made different");
    insta::assert_snapshot!(found(|c| c.data.max_line_bytes = 0), @"`data.max_line_bytes` is 0, it must be at least 1024");
    insta::assert_snapshot!(found(|c| c.data.max_line_bytes = 1 << 40), @"`data.max_line_bytes` is 1099511627776, it can be at most 1073741824");
}

#[test]
fn the_training() {
    insta::assert_snapshot!(found(|c| c.training.per_device_train_batch_size = 0.into()), @"`training.per_device_train_batch_size` is 0, it must be at least 1");
    insta::assert_snapshot!(found(|c| c.training.per_device_train_batch_size = usize::MAX.into()), @"`training.per_device_train_batch_size` 18446744073709551615 times `data.max_seq_length` 128 is over 2^31 tokens");
    insta::assert_snapshot!(found(|c| c.training.max_steps = -2), @"`training.max_steps` is -2, it must be 0 or above, or -1");
    assert_eq!(found(|c| c.training.max_steps = 0), "", "writes the model as it begins");
    insta::assert_snapshot!(found(|c| c.training.num_train_epochs = 0.0), @"`training.num_train_epochs` is 0 and `training.max_steps` is not given: training has no length");
    assert_eq!(
        found(|c| {
            c.training.num_train_epochs = 0.0;
            c.training.max_steps = 10;
        }),
        ""
    );
    insta::assert_snapshot!(found(|c| c.training.max_train_time = Some("soon".to_string())), @"`training.max_train_time`: `soon` is not a duration");
    insta::assert_snapshot!(found(|c| c.training.max_train_time = Some("0s".to_string())), @"`training.max_train_time` is no time at all");
    insta::assert_snapshot!(found(|c| c.training.learning_rate = f64::INFINITY), @"`training.learning_rate` is no finite number");
    insta::assert_snapshot!(found(|c| c.training.adam_beta2 = 1.0), @"`training.adam_beta2` is 1, it must be at least 0 and below 1");
    insta::assert_snapshot!(found(|c| c.training.adam_epsilon = 0.0), @"`training.adam_epsilon` is 0, it must be above 0");
    insta::assert_snapshot!(found(|c| c.training.optim = OptimizerType::Lamb), @"`training.optim` is `lamb`, but with `training.weight_decay` 0 no tensor has a trust ratio: this is Adam");
    insta::assert_snapshot!(found(|c| { c.training.optim = OptimizerType::Muon; c.training.muon.momentum = 1.0; c.training.muon.ns_steps = 100 }), @r#"
    `training.muon.momentum` is 1, it must be at least 0 and below 1
    `training.muon.ns_steps` is 100, it can be at most 99
    "#);
    insta::assert_snapshot!(found(|c| c.training.weight_decay = -0.1), @"`training.weight_decay` is -0.1, it must be at least 0");
    insta::assert_snapshot!(found(|c| c.training.save_total_limit = 0), @"`training.save_total_limit` is 0, it must be at least 1");
    insta::assert_snapshot!(found(|c| c.training.save_total_bytes = Some(0)), @"`training.save_total_bytes` is 0, it must be at least 1");
    insta::assert_snapshot!(found(|c| { c.training.eval_steps = 0; c.training.load_best_model_at_end = true; c.training.early_stopping_patience = Some(3) }), @r#"
    `training.load_best_model_at_end` needs evaluations during training, but `training.eval_steps` is 0
    `training.early_stopping_patience` needs evaluations during training, but `training.eval_steps` is 0
    "#);
}

#[test]
fn a_batch_that_is_to_be_found() {
    assert_eq!(found_with_auto(|_| {}), "");
    insta::assert_snapshot!(found_with_auto(|t| t.train_batch_size = None), @"`training.per_device_train_batch_size` is `auto`, but `training.train_batch_size` is missing: an update has no size");
    insta::assert_snapshot!(found_with_auto(|t| t.train_batch_size = Some(0)), @"`training.train_batch_size` is 0, it must be at least 1");
    insta::assert_snapshot!(found_with_auto(|t| t.gradient_accumulation_steps = 2), @"`training.gradient_accumulation_steps` is 2, but `training.per_device_train_batch_size` is `auto` and finds one number of micro-batches for all updates");
    insta::assert_snapshot!(found_with_auto(|t| t.batch_size_ramp.start_micro_batches = 3), @"`training.batch_size_ramp` counts micro-batches, but `training.per_device_train_batch_size` is `auto` and finds one number of micro-batches for all updates");
    insta::assert_snapshot!(found_with_auto(|t| t.per_device_train_batch_size = 8.into()), @"`training.train_batch_size` is given, but `training.per_device_train_batch_size` is not `auto`");
}

#[test]
fn the_schedule() {
    insta::assert_snapshot!(found(|c| { c.training.max_steps = 100; c.training.warmup_steps = 500.0 }), @"`training.warmup_steps` 500 is longer than `training.max_steps` 100");
    insta::assert_snapshot!(found(|c| c.training.warmup_steps = 1.5), @"`training.warmup_steps` is 1.5, neither whole steps nor a share below 1");
    insta::assert_snapshot!(found(|c| c.training.warmup_steps = -1.0), @"`training.warmup_steps` is -1, it must be at least 0");
    assert_eq!(found_in_decay(50.0), "");
    insta::assert_snapshot!(found_in_decay(51.0), @"`training.warmup_steps` 0.5 and `training.lr_decay_steps` 51 are longer together than `training.max_steps` 100");
    insta::assert_snapshot!(found(|c| { c.training.lr_scheduler_type = SchedulerType::Constant; c.training.warmup_steps = 10.0 }), @"`training.warmup_steps` is given, but the schedule `constant` has no warm-up");
}

#[test]
fn limits_of_money_and_time() {
    insta::assert_snapshot!(found(|c| c.run.budget_usd = Some(5.0)), @"`run.budget_usd` is given, and not what an hour costs");
    insta::assert_snapshot!(found(|c| { c.run.budget_usd = Some(0.0); c.run.usd_per_hour = Some(2.0) }), @"`run.budget_usd` is 0, it must be above 0");
    insta::assert_snapshot!(found(|c| c.run.deadline = Some("tomorrow".into())), @"`run.deadline`: `tomorrow` is not a moment");
    assert_eq!(found(|c| c.run.deadline = Some("2026-12-24T18:00+02:00".into())), "");
    insta::assert_snapshot!(found(|c| { c.run.deadline = Some("2026-12-24T18:00:00Z".into()); c.mlm.mlm_probability_end = Some(0.1) }), @"`mlm.mlm_probability_end` follows the steps, which `run.deadline` can make fewer");
    insta::assert_snapshot!(found_in_finetune(|c| { c.run.deadline = Some("2026-12-24T18:00:00Z".into()); c.seeds = vec![1, 2] }), @"`run.deadline` limits one run, and `seeds` names 2");
}

#[test]
fn fine_tuning() {
    insta::assert_snapshot!(found_in_finetune(|c| { c.model = PathBuf::new(); c.data.eval_file = PathBuf::new() }), @r#"
    `model` is empty
    `data.eval_file` is missing
    "#);
    insta::assert_snapshot!(found_in_finetune(|c| c.data.max_train_fraction = Some(1.5)), @"`data.max_train_fraction` is 1.5, it must be above 0 and at most 1");
    insta::assert_snapshot!(found_in_finetune(|c| c.data.max_train_samples = Some(0)), @"`data.max_train_samples` is 0, it must be at least 1");
    insta::assert_snapshot!(found_in_finetune(|c| c.data.labels = vec!["a".to_string()]), @"`data.labels` has one label, there is nothing to tell apart");
    insta::assert_snapshot!(found_in_finetune(|c| c.data.labels = vec!["a".to_string(), "a".to_string()]), @"`data.labels` names `a` twice");
    insta::assert_snapshot!(found_in_finetune(|c| c.seeds = vec![1, 2, 1]), @"`seeds` names `1` twice");
    insta::assert_snapshot!(found_in_finetune(|c| { c.data.text_column = Some("x".into()); c.data.label_column = Some("x".into()) }), @"`data.label_column` and `data.text_column` name the same column `x`");
}

#[test]
fn numbers() {
    assert_eq!(found_in_task(FinetuneTask::Regression, |c| c.data.labels = vec!["stars".into()]), "");
    let both = found_in_task(FinetuneTask::Regression, |c| {
        c.data.labels = vec!["a".into()];
        c.data.label_column = Some("b".into());
    });
    assert_eq!(both, "`data.label_column` is the column of one number, and `data.labels` names columns too");
}

#[test]
fn tagged_words() {
    assert_eq!(
        found_in_task(FinetuneTask::TokenClassify, |c| (c.data.tag_scheme, c.data.strict) =
            (TagScheme::Bioes, true)),
        ""
    );
    insta::assert_snapshot!(found_in_task(FinetuneTask::TokenClassify, |c| c.data.token_column = 0), @"`data.token_column` is 0, columns count from 1, and from the end with -1");
    insta::assert_snapshot!(found_in_task(FinetuneTask::TokenClassify, |c| c.data.tag_column = 1), @"`data.token_column` and `data.tag_column` are both 1");
    insta::assert_snapshot!(found_in_task(FinetuneTask::TokenClassify, |c| c.data.text_pair_column = Some("b".into())), @"`data.text_pair_column` is for pairs of texts, not for tagged words");
    insta::assert_snapshot!(found_in_finetune(|c| c.data.strict = true), @"`data.strict` is for tagged words, and `task` is another one");
    insta::assert_snapshot!(found_in_finetune(|c| c.data.tag_column = 2), @"`data.tag_column` is for tagged words, and `task` is another one");
}

#[test]
fn the_precision() {
    let defaults = LossScaleConfig::default;
    assert_eq!(found(|c| c.precision.compute = ComputeChoice::Bf16), "");
    assert_eq!(found_with_scale(ComputeChoice::F16, defaults()), "");
    assert_eq!(
        found_with_scale(
            ComputeChoice::F16,
            LossScaleConfig { init_scale: Some(1_048_576.0), min_scale: 0.125, ..defaults() }
        ),
        ""
    );
    insta::assert_snapshot!(found_with_scale(ComputeChoice::Bf16, defaults()), @"`precision.loss_scale` is given, but only f16 scales the loss");
    insta::assert_snapshot!(found_with_scale(ComputeChoice::F16, LossScaleConfig { growth_interval: 0, ..defaults() }), @"`precision.loss_scale.growth_interval` is 0, it must be at least 1");
    insta::assert_snapshot!(found_with_scale(ComputeChoice::F16, LossScaleConfig { init_scale: Some(1000.0), ..defaults() }), @"`precision.loss_scale.init_scale` is 1000, it must be a power of two from 2^-24 to 2^24");
    insta::assert_snapshot!(found_with_scale(ComputeChoice::F16, LossScaleConfig { min_scale: 0.0, ..defaults() }), @"`precision.loss_scale.min_scale` is 0, it must be a power of two from 2^-24 to 2^24");
    insta::assert_snapshot!(found_with_scale(ComputeChoice::F16, LossScaleConfig { init_scale: Some(2.0), min_scale: 4.0, ..defaults() }), @"`precision.loss_scale.init_scale` 2 is below `min_scale` 4");
    assert_eq!(found_with_scale(ComputeChoice::Auto, defaults()), "", "it may be f16");
    let in_finetune = found_in_finetune(|c| {
        (c.precision.compute, c.precision.loss_scale) = (ComputeChoice::F32, Some(defaults()));
    });
    assert!(in_finetune.contains("only f16 scales the loss"), "{in_finetune}");
}

/// Returns the problems of a model of this family after one change of its encoder.
fn found_in_family(family: Family, max_seq_length: usize, change: fn(&mut EncoderConfig)) -> String {
    found(|c| {
        c.model.tables[0] = ModelConfig { family, encoder: EncoderConfig::of(family) };
        c.data.max_seq_length = max_seq_length;
        change(encoder(c));
    })
}

/// Returns the problems of two sources with these names.
fn found_in_names(first: Option<&str>, second: Option<&str>) -> String {
    found(|c| {
        c.data.sources.push(c.data.sources[0].clone());
        c.data.sources[0].name = first.map(str::to_string);
        c.data.sources[1].name = second.map(str::to_string);
    })
}

/// Returns the problems of updates of 64 rows in micro-batches of size `auto`, after one change.
fn found_with_auto(change: fn(&mut TrainingConfig)) -> String {
    found(|c| {
        c.training.per_device_train_batch_size = BatchSize::Auto;
        c.training.train_batch_size = Some(64);
        change(&mut c.training);
    })
}

/// Returns the problems of a decay over `decay` of 100 steps, after 50 steps of warm-up.
fn found_in_decay(decay: f64) -> String {
    found(|c| {
        c.training.lr_scheduler_type = SchedulerType::WarmupStableDecay;
        c.training.max_steps = 100;
        c.training.warmup_steps = 0.5;
        c.training.lr_decay_steps = decay;
    })
}

fn found_in_task(task: FinetuneTask, change: fn(&mut FinetuneConfig)) -> String {
    found_in_finetune(|c| {
        c.task = task;
        change(c);
    })
}

fn found_with_scale(compute: ComputeChoice, loss_scale: LossScaleConfig) -> String {
    found(|c| {
        c.precision = PrecisionConfig { compute, loss_scale: Some(loss_scale), ..PrecisionConfig::default() }
    })
}
