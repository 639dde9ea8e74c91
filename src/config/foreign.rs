//! Keys and values of other trainers, with their counterparts in mlmtrain: one table of keys, one of values.
//!
//! Data for the hints of errors and for `convert.rs`. The fields of our own keys declare their other names.

use Elsewhere::{Hint, Key, Nowhere, Value};

use crate::facts;

/// The counterpart of a key of another trainer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Elsewhere {
    /// The key with this path takes the same value; the second text continues the hint.
    Key(&'static str, &'static str),
    /// If the foreign key is on, the key with this path has this value.
    Value(&'static str, &'static str),
    /// There is no counterpart, and none is needed, for this reason.
    Nowhere(&'static str),
    /// There is no single counterpart; the text is the hint.
    Hint(&'static str),
}

/// Keys of Hugging Face's `TrainingArguments` and example scripts and of other trainers that are not just
/// another name of a key: fields declare such names as `x-foreign-names`.
const KEYS: &[(&[&str], Elsewhere)] = &[
    (&["fp16", "half_precision"], Value("precision.compute", "f16")),
    (&["bf16"], Value("precision.compute", "bf16")),
    (&["rope_theta"], Hint("write `global_rope_theta`, in `model.modernbert` or in a phase")),
    (&["betas"], Hint("write `training.adam_beta1` and `training.adam_beta2`")),
    (&["auto_find_batch_size"], Value("training.per_device_train_batch_size", "auto")),
    (&["greater_is_better"], Nowhere("which way `training.metric_for_best_model` is better is known")),
    (&["no_cuda", "use_cpu"], Value("run.device", "cpu")),
    (&["overwrite_output_dir"], Nowhere("choose another `run.output_dir` to start again")),
    (&["resume_from_checkpoint", "resume"], Nowhere("a run resumes by itself; see `--resume`")),
    (&["do_train", "do_eval", "do_predict"], Nowhere("the command says what is done")),
    (
        &["train_file", "train_files", "files", "data_files", "data_path", "corpus"],
        Hint("name the files under `data.sources`: `- files: [corpus/*.txt]`"),
    ),
    (
        &["field", "format", "document", "weight"],
        Hint("write it beside the `files` of a source, below `data.sources`"),
    ),
    (
        &["dataset_name", "dataset", "dataset_config_name"],
        Hint("download it, and name the files under `data.sources`; nothing is fetched from a hub"),
    ),
    (
        &["text_column", "text_column_name", "content_field"],
        Hint("write `field` beside the `files` of a source"),
    ),
    (&["eval_file", "validation_file"], Nowhere("`data.validation_fraction` is split off the corpus")),
    (&["line_by_line"], Hint("write `document: line` beside the `files` of a source")),
    (&["pad_to_max_length", "group_by_length"], Nowhere("rows are packed, nothing is padded")),
    (&["return_entity_level_metrics"], Nowhere("the scores of each type are always written")),
    (&["label_all_tokens"], Nowhere("the first piece of a word has its label")),
    (&["streaming", "cache_dir", "overwrite_cache"], Nowhere("shards are read from `data.prepared_dir`")),
    (
        &["config_name", "config_overrides", "model_type"],
        Hint("write the sizes under `model`, below the family's name"),
    ),
    (&["whole_word_mask", "wwm"], Value("mlm.masking", "whole_word")),
    (&["multi_label", "multilabel", "is_multi_label"], Value("problem_type", "multi_label_classification")),
    (&["layerdrop"], Hint("not built: remove it")),
    (
        &["deepspeed", "fsdp", "ddp_backend", "local_rank", "ddp_find_unused_parameters"],
        Hint("remove it: several GPUs or machines train by MPI and NCCL, with a process for each (`mpirun`)"),
    ),
    (&["torch_compile"], Nowhere("the kernels are compiled already")),
    (
        &["push_to_hub", "hub_model_id", "hub_token"],
        Hint("not built: upload the folder `final` with Hugging Face's tools"),
    ),
];

/// Values in other trainers: path of the key, names of the value, its counterpart if there is one, and the
/// hint.
const VALUES: &[(&str, &[&str], Option<&str>, &str)] = &[
    (
        "training.optim",
        &["adamw_torch", "adamw_torch_fused", "adamw_hf", "adam", "adamw_apex_fused"],
        Some("adamw"),
        "write `adamw`, which is the same",
    ),
    ("training.optim", &["lion_32bit"], Some("lion"), "write `lion`, which is the same"),
    (
        "training.lr_scheduler_type",
        &["cosine_with_restarts", "cosine_with_min_lr", "inverse_sqrt", "reduce_lr_on_plateau"],
        None,
        "not built; `cosine` and `warmup_stable_decay` come nearest",
    ),
];

/// Families of encoders that users may look for. Supported families are keys of `model`, so they are never
/// looked up here.
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

/// Returns true if `name` is a family of encoders in other programs.
pub(super) fn is_family(name: &str) -> bool {
    FAMILIES.contains(&name.to_lowercase().replace('-', "_").as_str())
}

/// Returns a hint for a `model` that is a text instead of a table (`wants_table`), or the reverse.
pub(super) fn model_hint(wants_table: bool) -> &'static str {
    if wants_table {
        "put the table of a family below it, for a new model, or `path: FOLDER`, to continue a trained one"
    } else {
        "fine-tuning starts from a model folder: name it; a family is for `pretrain`"
    }
}

impl Elsewhere {
    /// Returns the text of a hint.
    pub(super) fn hint(self) -> String {
        match self {
            Self::Key(path, more) => format!("write `{path}`{more}"),
            Self::Value(path, value) => format!("write `{path}: {value}`"),
            Self::Nowhere(why) => format!("remove it: {why}"),
            Self::Hint(hint) => hint.to_string(),
        }
    }
}

/// Returns the counterpart of a key of other trainers.
pub(super) fn key(key: &str) -> Option<Elsewhere> {
    let key = key.to_lowercase().replace('-', "_");
    let field = facts::all().find(|(_, facts)| facts.foreign_names.contains(&key));
    let field = field.map(|(path, facts)| Key(path, &facts.foreign_hint));
    field.or_else(|| {
        KEYS.iter().find(|(names, _)| names.contains(&key.as_str())).map(|(_, elsewhere)| *elsewhere)
    })
}

/// Returns the counterpart of a value that other trainers have for the key at `path`.
pub(super) fn value(path: &str, value: &str) -> Option<&'static str> {
    VALUES
        .iter()
        .find(|(key, names, ..)| *key == path && names.contains(&value))
        .and_then(|(_, _, own, _)| *own)
}

/// Returns the hint for a value that other trainers have for the key at `path`.
pub(super) fn value_hint(path: &str, value: &str) -> Option<&'static str> {
    VALUES.iter().find(|(key, names, ..)| *key == path && names.contains(&value)).map(|(.., hint)| *hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;
    use crate::{FinetuneConfig, PretrainConfig};

    /// Returns true if one of the shapes has a key at `path`.
    fn exists(shapes: &[Shape], path: &str) -> bool {
        shapes
            .iter()
            .any(|shape| path.split('.').try_fold(shape, |here, key| Some(&here.field(key)?.shape)).is_some())
    }

    #[test]
    fn every_hint_names_keys_that_exist_and_every_name_has_one_hint() {
        let shapes = [Shape::from_struct::<PretrainConfig>(), Shape::from_struct::<FinetuneConfig>()];
        let fields = facts::all().filter(|(_, facts)| !facts.foreign_names.is_empty());
        let fields = fields.map(|(path, facts)| Key(path, &facts.foreign_hint).hint());
        let hints = KEYS.iter().map(|(_, elsewhere)| elsewhere.hint()).chain(fields);
        let hints: Vec<String> = hints.chain(VALUES.iter().map(|(.., hint)| (*hint).to_string())).collect();
        for word in hints.iter().flat_map(|hint| hint.split('`').skip(1).step_by(2)) {
            let path = word.split(':').next().unwrap_or_default();
            if !path.contains('.') || !path.starts_with(|c: char| c.is_ascii_lowercase()) {
                continue;
            }
            assert!(exists(&shapes, path), "`{word}`");
        }
        let names: Vec<&str> = KEYS.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "`{name}` stands twice");
        }
        for (path, ..) in VALUES {
            assert!(exists(&shapes, path), "`{path}`");
        }
        assert!(!shapes[1].find("train_file").is_empty(), "a key of one kind may be foreign to the other");
    }
}
