//! Tests of the hints for users of another trainer or of the wrong command, and a check that the guide names
//! every key.

use super::*;

#[test]
fn a_configuration_of_the_other_kind_is_named_as_such() {
    let labelled = "model: m\ndata: {train_file: a.csv, eval_file: b.csv}\n";
    insta::assert_snapshot!(problems(labelled, &[]), @"
    error: a.yaml: is a configuration of `finetune`, and one of `pretrain` is wanted
      hint: `mlmtrain finetune --config FILE` trains by it; `mlmtrain plan` tells time and cost
    ");
    insta::assert_snapshot!(load_labelled(SMALL, &[]).expect_err("is wrong"), @"
    error: a.yaml: is a configuration of `pretrain`, and one of `finetune` is wanted
      hint: `mlmtrain pretrain --config FILE` trains by it; `mlmtrain plan` tells time and cost
    ");
    let folder = "model: runs/a/final\ndata: {sources: [{files: [a.txt]}]}\n";
    insta::assert_snapshot!(problems(folder, &[]), @"
    error: a.yaml:1:8: `model` wants a table of keys, not the text `runs/a/final`
      hint: put the table of a family below it, for a new model, or `path: FOLDER`, to continue a trained one
    ");
    let family = "model: {roberta: {}}\ndata: {train_file: a.csv, eval_file: b.csv}\n";
    insta::assert_snapshot!(load_labelled(family, &[]).expect_err("is wrong"), @"
    error: a.yaml:1:8: `model` wants a text, not a table
      hint: fine-tuning starts from a model folder: name it; a family is for `pretrain`
    ");
}

#[test]
fn the_error_for_an_unsupported_family_names_the_supported_ones() {
    insta::assert_snapshot!(problems_of_family("deberta_v3"), @"
    error: a.yaml:2:9: unknown key `deberta_v3` in `model`
      hint: write `deberta-v2`, which is DeBERTa-v2 and v3
    ");
    insta::assert_snapshot!(problems_of_family("squeezebert"), @"
    error: a.yaml:2:9: unknown key `squeezebert` in `model`
      hint: this family is not built; those that are: `roberta`, `bert`, `electra`, `modernbert`, `deberta-v2`, `distilbert`, `xlm-roberta`, `camembert`, `albert`, `mpnet` and `neobert`
    ");
    insta::assert_snapshot!(problems_of_family("robreta"), @"
    error: a.yaml:2:9: unknown key `robreta` in `model`
      hint: did you mean `roberta`?
    ");
}

fn problems_of_family(family: &str) -> String {
    problems(format!("data: {{sources: [{{files: [a.txt]}}]}}\nmodel: {{{family}: {{}}}}\n"), &[])
}

fn problems_of_modernbert(key: &str) -> String {
    let model = format!("model: {{modernbert: {{{key}: 1}}}}\n");
    problems(format!("data: {{sources: [{{files: [a.txt]}}]}}\n{model}"), &[])
}

#[test]
fn the_error_for_a_key_names_the_own_name_of_the_family() {
    insta::assert_snapshot!(problems_of_modernbert("layer_norm_eps"), @"
    error: a.yaml:2:22: unknown key `layer_norm_eps` in `model.modernbert`
      hint: ModernBERT calls it `norm_eps`
    ");
    insta::assert_snapshot!(problems_of_modernbert("type_vocab_size"), @"
    error: a.yaml:2:22: unknown key `type_vocab_size` in `model.modernbert`
      hint: did you mean `vocab_size`?
    ");
}

#[test]
fn keys_of_other_trainers_lead_to_their_counterparts() {
    insta::assert_snapshot!(problems("data: {files: [a.txt]}\nmodel: {roberta: {}}\n", &[]).lines().take(2).collect::<Vec<_>>().join("\n"), @"
    error: a.yaml:1:8: unknown key `files` in `data`
      hint: name the files under `data.sources`: `- files: [corpus/*.txt]`
    ");
    let text = format!(
        "{SMALL}learning_rate: 1e-4\noutput_dir: runs/a\nmlm: true\ntokenizer_name: roberta-base\ntrain_file: a.txt\ntraining:\n  \
         fp16: true\n  lr: 0.1\n  optim: adamw_torch\n  lr_scheduler_type: cosine_with_restarts\n  eval_strategy: steps\n  report_to: wandb\n  \
         num_epochs: 3\n  class_weight: [1, 2]\n  batch_size: 8\n  max_length: 64\n  hidden_size: 3\ndata:\n"
    );
    insta::assert_snapshot!(problems(text.trim_end_matches("data:\n"), &[]), @"
    error: a.yaml:8:1: unknown key `learning_rate`
      hint: `learning_rate` belongs elsewhere: `training.learning_rate`
    error: a.yaml:9:1: unknown key `output_dir`
      hint: `output_dir` belongs elsewhere: `run.output_dir`
    error: a.yaml:10:6: `mlm` wants a table of keys, not `true`
      hint: write its keys below it, indented by two spaces
    error: a.yaml:11:1: unknown key `tokenizer_name`
      hint: write `tokenizer.path`
    error: a.yaml:12:1: unknown key `train_file`
      hint: name the files under `data.sources`: `- files: [corpus/*.txt]`
    error: a.yaml:14:3: unknown key `fp16` in `training`
      hint: write `precision.compute: f16`
    error: a.yaml:15:3: unknown key `lr` in `training`
      hint: write `training.learning_rate`
    error: a.yaml:16:10: `training.optim` cannot be `adamw_torch`
      hint: write `adamw`, which is the same
    error: a.yaml:17:22: `training.lr_scheduler_type` cannot be `cosine_with_restarts`
      hint: not built; `cosine` and `warmup_stable_decay` come nearest
    error: a.yaml:18:3: unknown key `eval_strategy` in `training`
      hint: write `training.eval_steps`; 0 evaluates only at the end
    error: a.yaml:19:3: unknown key `report_to` in `training`
      hint: write `run.tensorboard`: true or false; metrics.jsonl is always written
    error: a.yaml:20:3: unknown key `num_epochs` in `training`
      hint: write `training.num_train_epochs`
    error: a.yaml:21:3: unknown key `class_weight` in `training`
      hint: write `training.class_weights`: `balanced`, or a number for each label
    error: a.yaml:22:3: unknown key `batch_size` in `training`
      hint: write `training.per_device_train_batch_size`
    error: a.yaml:23:3: unknown key `max_length` in `training`
      hint: `max_length` belongs elsewhere: `data.max_seq_length`
    error: a.yaml:24:3: unknown key `hidden_size` in `training`
      hint: `hidden_size` belongs elsewhere: `model.<family>.hidden_size`
    ");
}
