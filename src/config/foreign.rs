//! What other trainers call a key or a value, and where it is here: one table of keys, one of values.
//!
//! Data only, for the hints of errors. Names that are taken as they are stand in `shape::OTHER_NAMES`.

/// Keys of Hugging Face's `TrainingArguments` and example scripts and of other trainers, with the hint.
const KEYS: &[(&[&str], &str)] = &[
    (&["fp16", "half_precision"], "write `precision.compute: f16`"),
    (&["bf16"], "write `precision.compute: bf16`"),
    (
        &["dtype", "torch_dtype", "mixed_precision", "autocast"],
        "write `precision.compute`: auto, f32, bf16 or f16",
    ),
    (&["lr", "max_lr", "peak_lr"], "write `training.learning_rate`"),
    (&["lr_scheduler", "scheduler", "schedule"], "write `training.lr_scheduler_type`"),
    (
        &["warmup", "warmup_fraction", "num_warmup_steps"],
        "write `training.warmup_steps`; below 1 it is a share",
    ),
    (
        &["num_decay_steps", "decay_steps", "lr_scheduler_kwargs"],
        "write `training.lr_decay_steps`, `decay_type` and `min_lr_ratio`, or `lr_power`",
    ),
    (&["rope_theta"], "write `global_rope_theta`, in `model.modernbert` or in a phase"),
    (&["optimizer"], "write `training.optim`"),
    (&["betas"], "write `training.adam_beta1` and `training.adam_beta2`"),
    (&["eps", "epsilon"], "write `training.adam_epsilon`"),
    (&["gradient_clipping", "grad_clip", "clip_grad", "clip_grad_norm"], "write `training.max_grad_norm`"),
    (&["epochs", "num_epochs", "max_epochs", "n_epochs"], "write `training.num_train_epochs`"),
    (&["steps", "num_steps", "total_steps", "max_train_steps"], "write `training.max_steps`"),
    (
        &["batch_size", "train_batch_size_per_device", "micro_batch_size", "device_train_microbatch_size"],
        "write `training.per_device_train_batch_size`",
    ),
    (&["eval_batch_size"], "write `training.per_device_eval_batch_size`"),
    (&["accumulate_grad_batches", "grad_accumulation"], "write `training.gradient_accumulation_steps`"),
    (&["global_batch_size"], "write `training.train_batch_size`, with `per_device_train_batch_size: auto`"),
    (&["auto_find_batch_size"], "write `training.per_device_train_batch_size: auto`"),
    (&["eval_strategy", "evaluation_strategy"], "write `training.eval_steps`; 0 evaluates only at the end"),
    (&["save_strategy"], "write `training.save_steps`; 0 saves only at the end"),
    (&["logging_strategy"], "write `training.logging_steps`"),
    (&["greater_is_better"], "remove it: which way `training.metric_for_best_model` is better is known"),
    (
        &["report_to", "logging_dir"],
        "write `run.tensorboard`: true or false; metrics.jsonl is always written",
    ),
    (&["tf32"], "write `precision.tf32`"),
    (&["no_cuda", "use_cpu"], "write `run.device: cpu`"),
    (&["data_seed"], "write `run.seed`: order, masks and dropout follow from it"),
    (&["num_threads", "preprocessing_num_workers"], "write `run.threads`"),
    (&["dataloader_num_workers", "num_workers"], "write `data.loader_workers`; it changes no batch"),
    (&["overwrite_output_dir"], "remove it: choose another `run.output_dir` to start again"),
    (&["resume_from_checkpoint", "resume"], "remove it: a run resumes by itself; see `--resume`"),
    (&["do_train", "do_eval", "do_predict"], "remove it: the command says what is done"),
    (&["block_size", "max_sequence_length", "seq_length", "seq_len"], "write `data.max_seq_length`"),
    (
        &["train_file", "train_files", "files", "data_files", "data_path", "corpus"],
        "name the files under `data.sources`: `- files: [corpus/*.txt]`",
    ),
    (
        &["field", "format", "document", "weight"],
        "write it beside the `files` of a source, below `data.sources`",
    ),
    (
        &["dataset_name", "dataset", "dataset_config_name"],
        "download it, and name the files under `data.sources`; nothing is fetched from a hub",
    ),
    (&["text_column", "text_column_name", "content_field"], "write `field` beside the `files` of a source"),
    (&["eval_file", "validation_file"], "remove it: `data.validation_fraction` is split off the corpus"),
    (&["validation_split_percentage"], "write `data.validation_fraction`: 5 percent are `0.05`"),
    (&["line_by_line"], "write `document: line` beside the `files` of a source"),
    (&["pad_to_max_length", "group_by_length"], "remove it: rows are packed, nothing is padded"),
    (&["return_entity_level_metrics"], "remove it: the scores of each type are always written"),
    (&["label_all_tokens"], "remove it: the first piece of a word has its label"),
    (&["streaming", "cache_dir", "overwrite_cache"], "remove it: shards are read from `data.prepared_dir`"),
    (&["tokenizer_name", "tokenizer_path"], "write `tokenizer.path`"),
    (
        &["config_name", "config_overrides", "model_type"],
        "write the sizes under `model`, below the family's name",
    ),
    (&["whole_word_mask", "wwm"], "write `mlm.masking: whole_word`"),
    (&["mask_prob", "masking_probability", "mask_probability"], "write `mlm.mlm_probability`"),
    (&["early_stopping", "patience"], "write `training.early_stopping_patience`"),
    (&["multi_label", "multilabel", "is_multi_label"], "write `problem_type: multi_label_classification`"),
    (&["class_weight"], "write `training.class_weights`: `balanced`, or a number for each label"),
    (&["label_smoothing"], "write `training.label_smoothing_factor`"),
    (&["layerdrop"], "not built: remove it"),
    (&["layer_wise_lr_decay", "llrd"], "write `training.layerwise_lr_decay`"),
    (&["classifier_learning_rate", "head_lr", "classifier_lr"], "write `training.head_learning_rate`"),
    (
        &["freeze_layers", "freeze_embeddings", "freeze_encoder", "num_frozen_layers"],
        "write `training.frozen_layers`: a number of layers, or `embeddings`",
    ),
    (
        &["torch_compile", "deepspeed", "fsdp", "ddp_backend", "local_rank"],
        "not built: one process, one device",
    ),
    (
        &["push_to_hub", "hub_model_id", "hub_token"],
        "not built: upload the folder `final` with Hugging Face's tools",
    ),
];

/// Values of a key that other trainers know, with the hint.
const VALUES: &[(&str, &[&str], &str)] = &[
    (
        "training.optim",
        &["adamw_torch", "adamw_torch_fused", "adamw_hf", "adam", "adamw_apex_fused"],
        "write `adamw`, which is the same",
    ),
    (
        "training.lr_scheduler_type",
        &["cosine_with_restarts", "cosine_with_min_lr", "inverse_sqrt", "reduce_lr_on_plateau"],
        "not built; `cosine` and `warmup_stable_decay` come nearest",
    ),
];

/// Families of encoders that users may look for. One that is built is a key of `model`, and never comes here.
const FAMILIES: &[&str] = &[
    "albert",
    "camembert",
    "convbert",
    "deberta",
    "deberta_v2",
    "deberta_v3",
    "distilbert",
    "distilroberta",
    "electra",
    "eurobert",
    "fnet",
    "longformer",
    "mdeberta",
    "mobilebert",
    "modernbert",
    "mpnet",
    "neobert",
    "nomic_bert",
    "squeezebert",
    "xlm_roberta",
    "xlmroberta",
];

/// Whether `name` is a family of encoders that other programs have.
pub(super) fn is_family(name: &str) -> bool {
    FAMILIES.contains(&name.to_lowercase().replace('-', "_").as_str())
}

/// Why `model` is a table here and a text there.
pub(super) fn model_hint(wants_table: bool) -> &'static str {
    if wants_table {
        "pretraining makes a new model: put its family's table below it; a model folder is for `finetune`"
    } else {
        "fine-tuning starts from a model folder: name it; a family is for `pretrain`"
    }
}

/// The hint for a key that other trainers have.
pub(super) fn key_hint(key: &str) -> Option<&'static str> {
    let key = key.to_lowercase().replace('-', "_");
    KEYS.iter().find(|(names, _)| names.contains(&key.as_str())).map(|(_, hint)| *hint)
}

/// The hint for a value of the key at `path` that other trainers have.
pub(super) fn value_hint(path: &str, value: &str) -> Option<&'static str> {
    VALUES.iter().find(|(key, names, _)| *key == path && names.contains(&value)).map(|(.., hint)| *hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FinetuneConfig;
    use crate::config::PretrainConfig;
    use crate::config::shape::Shape;

    #[test]
    fn every_hint_names_keys_that_exist_and_every_name_has_one_hint() {
        let shape = Shape::of::<PretrainConfig>();
        let is_path = |word: &str| word.contains('.') && word.starts_with(|c: char| c.is_ascii_lowercase());
        let hints = KEYS.iter().map(|(_, hint)| *hint).chain(VALUES.iter().map(|(.., hint)| *hint));
        for word in hints.flat_map(|hint| hint.split('`').skip(1).step_by(2)) {
            let Some((path, _)) = word.split_once(':').or(Some((word, ""))).filter(|(p, _)| is_path(p))
            else {
                continue;
            };
            let leads_to = path.split('.').try_fold(&shape, |here, key| Some(&here.field(key)?.shape));
            assert!(leads_to.is_some(), "`{word}`");
        }
        let names: Vec<&str> = KEYS.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "`{name}` stands twice");
        }
        for (path, ..) in VALUES {
            assert!(path.split('.').try_fold(&shape, |here, key| Some(&here.field(key)?.shape)).is_some());
        }
        let fine_tuning = Shape::of::<FinetuneConfig>();
        assert!(!fine_tuning.find("train_file").is_empty(), "a key of one kind may be foreign to the other");
    }
}
