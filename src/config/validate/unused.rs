//! Reports keys that are given but have no effect because of another key: each would be a silent surprise. Where
//! one value of one key decides, the field declares it (`x-only-with`).
//!
//! A key counts as given if its value is not the default, so that a saved configuration, which contains every
//! key, is accepted again.

use serde::Serialize;
use serde_json::Value as Json;

use crate::validate::Findings;
use crate::{
    BatchSize, DeduplicationConfig, DocumentUnit, FiltersConfig, FinetuneConfig, FinetuneTask, Format, Goal,
    PretrainConfig, SourceConfig, TokenizerConfig, TrainingConfig,
};

pub(super) fn pretrain(config: &PretrainConfig, findings: &mut Findings) {
    of_finetuning(&config.training, findings);
    of_classification(&config.training, findings);
    tokenizer(&config.tokenizer, findings);
    sources(&config.data.sources, findings);
    deduplication(&config.data.deduplication, findings);
    filters(&config.data.filters, findings);
    let contamination = &config.data.contamination;
    if contamination.files.is_empty() {
        let why = "`data.contamination.files` is empty";
        ignored("data.contamination", contamination, &["files"], why, "name the evaluation files", findings);
    }
    if !config.evaluation.has_probes() {
        let hint = "name a file of tasks with `evaluation.probes`";
        ignored(
            "evaluation",
            &config.evaluation,
            &["loss_band"],
            "there is nothing to probe",
            hint,
            findings,
        );
    }
    let ramp = &config.training.batch_size_ramp;
    // With `auto`, any ramp is refused elsewhere.
    if ramp.steps == 0 && config.training.per_device_train_batch_size != BatchSize::Auto {
        let why = "`training.batch_size_ramp.steps` is 0";
        ignored(
            "training.batch_size_ramp",
            ramp,
            &[],
            why,
            "say over how many steps the ramp goes",
            findings,
        );
    }
}

/// Reports keys that only fine-tuning reads.
fn of_finetuning(training: &TrainingConfig, findings: &mut Findings) {
    let keys = [
        ("head_learning_rate", training.head_learning_rate.is_some()),
        ("frozen_layers", training.frozen_layers != TrainingConfig::default().frozen_layers),
    ];
    for (key, _) in keys.into_iter().filter(|(_, is_given)| *is_given) {
        let path = format!("training.{key}");
        let message = format!("`{path}` is given, but pretraining trains the whole model at one rate");
        findings.add(&[&path], message, "remove it: it is for fine-tuning");
    }
}

/// Reports keys that only classification reads.
fn of_classification(training: &TrainingConfig, findings: &mut Findings) {
    let keys = [
        ("class_weights", training.class_weights.is_some()),
        ("label_smoothing_factor", training.label_smoothing_factor != 0.0),
    ];
    for (key, _) in keys.into_iter().filter(|(_, is_given)| *is_given) {
        let path = format!("training.{key}");
        let message = format!(
            "`{path}` is given, but it is for fine-tuning with one label an example, `task: classify` only"
        );
        findings.add(&[&path], message, "remove it");
    }
}

/// Reports keys that only pretraining or another task of fine-tuning reads.
pub(super) fn finetune(config: &FinetuneConfig, findings: &mut Findings) {
    if config.goal() != Goal::Label {
        of_classification(&config.training, findings);
        if config.distillation.is_some() {
            let message = "`distillation` is given, but it is for `task: classify` with one label an example";
            findings.add(&["distillation", "task"], message.to_string(), "remove it");
        }
    }
    if config.task != FinetuneTask::Classify && config.problem_type.is_some() {
        let message = "`problem_type` is given, but it is for `task: classify` only".to_string();
        findings.add(&["problem_type", "task"], message, "remove it: the task says what is learnt");
    }
    if config.goal() != Goal::LabelSet && config.data.label_separator.is_some() {
        let message = "`data.label_separator` is given, but each example has one label".to_string();
        let hint = "remove it, or set `problem_type: multi_label_classification`";
        findings.add(&["data.label_separator", "problem_type"], message, hint);
    }
    if config.run.sample_text.is_some() {
        let path = "run.sample_text";
        let message = format!("`{path}` is given, but a classifier fills in no masks");
        findings.add(&[path], message, "remove it: it is for pretraining");
    }
}

fn tokenizer(tokenizer: &TokenizerConfig, findings: &mut Findings) {
    if tokenizer.path.is_some() {
        let why = "`tokenizer.path` names a tokenizer that exists";
        let hint = "remove it: it says how to train a tokenizer";
        ignored("tokenizer", tokenizer, &["path", "compare_with"], why, hint, findings);
    }
}

fn sources(sources: &[SourceConfig], findings: &mut Findings) {
    let defaults = SourceConfig::of_files(Vec::new());
    for (index, source) in sources.iter().enumerate() {
        let is_text = matches!(source.format, Format::Auto | Format::Text);
        let unread = [
            (
                "document",
                !is_text && source.document != DocumentUnit::File,
                "only plain text is cut into documents",
            ),
            (
                "field",
                source.format == Format::Text && source.field != defaults.field,
                "plain text has no fields",
            ),
        ];
        for (key, _, why) in unread.into_iter().filter(|(_, is_unread, _)| *is_unread) {
            let path = format!("data.sources.{index}.{key}");
            let message = format!("`{path}` is given, but {why}");
            let format = format!("data.sources.{index}.format");
            findings.add(&[&path, &format], message, "leave it out, or correct `format`");
        }
    }
}

fn deduplication(config: &DeduplicationConfig, findings: &mut Findings) {
    let path = "data.deduplication";
    match (config.near_threshold, config.exact) {
        (Some(_), _) => {}
        (None, true) => {
            let why = "without `near_threshold` only equal texts are looked for";
            ignored(path, config, &["exact", "memory_bytes"], why, "add `near_threshold: 0.8`", findings);
        }
        (None, false) => {
            let why = "neither `exact` nor `near_threshold` is set";
            ignored(path, config, &[], why, "add `exact: true`, `near_threshold: 0.8` or both", findings);
        }
    }
}

fn filters(filters: &FiltersConfig, findings: &mut Findings) {
    let language = &filters.language;
    if language.expected.is_empty() {
        let why = "`data.filters.language.expected` is empty";
        let read: &[&str] = if language.detect { &["detect", "min_letters", "candidates"] } else { &[] };
        let hint = "name the languages to keep: `expected: [en]`";
        ignored("data.filters.language", language, read, why, hint, findings);
    }
    let perplexity = &filters.perplexity;
    if perplexity.max_perplexity.is_none() {
        // That the files need a limit is reported with the other rules of the filter.
        let why = "`data.filters.perplexity.max_perplexity` is not set";
        let hint = "`max_perplexity: 30` is a start";
        ignored("data.filters.perplexity", perplexity, &["reference_files"], why, hint, findings);
    }
}

/// Reports every key of a table with a value other than its default, except the keys in `read`. `why` is the
/// reason why the table is not read.
pub(super) fn ignored<T: Serialize + Default>(
    table: &str,
    values: &T,
    read: &[&str],
    why: &str,
    hint: &str,
    findings: &mut Findings,
) {
    let [given, defaults] = [values, &T::default()]
        .map(|table| serde_json::to_value(table).expect("configurations hold only tables with text keys"));
    for (key, value) in given.as_object().into_iter().flatten() {
        let is_default = defaults.get(key).unwrap_or(&Json::Null) == value;
        if !read.contains(&key.as_str()) && !is_default {
            let path = format!("{table}.{key}");
            findings.add(&[&path, table], format!("`{path}` is given, but {why}"), hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{FinetuneConfig, PretrainConfig, validate_finetune, validate_pretrain};

    /// Returns the problems of a right configuration after these sections are merged over it, a line each.
    fn found(sections: &Value) -> String {
        let mut all = json!({"data": {"sources": [{"files": ["a.txt"]}]}, "model": {"roberta": {}}});
        for (name, section) in sections.as_object().expect("is a table") {
            let mut table = all[name].as_object().cloned().unwrap_or_default();
            table.extend(section.as_object().expect("is a table").clone());
            all[name] = table.into();
        }
        let config: PretrainConfig = serde_json::from_value(all).expect("has the shape");
        let problems = validate_pretrain(&config);
        problems.iter().map(|p| p.message.clone()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn keys_next_to_an_existing_tokenizer() {
        let existing =
            json!({"tokenizer": {"path": "t", "vocab_size": 8000, "lowercase": true, "compare_with": "u"}});
        insta::assert_snapshot!(found(&existing), @"
        `tokenizer.vocab_size` is given, but `tokenizer.path` names a tokenizer that exists
        `tokenizer.lowercase` is given, but `tokenizer.path` names a tokenizer that exists
        ");
        assert_eq!(found(&json!({"tokenizer": {"path": "t", "vocab_size": 30_000}})), "");
    }

    #[test]
    fn keys_of_another_schedule() {
        insta::assert_snapshot!(found(&json!({"training": {"lr_power": 2.0, "lr_decay_steps": 50,
            "decay_type": "1-sqrt", "min_lr_ratio": 0.1}})), @"
        `training.decay_type` is given, but `training.lr_scheduler_type: linear` does not read it
        `training.lr_decay_steps` is given, but `training.lr_scheduler_type: linear` does not read it
        `training.lr_power` is given, but `training.lr_scheduler_type: linear` does not read it
        `training.min_lr_ratio` is given, but `training.lr_scheduler_type: linear` does not read it
        ");
        for right in [
            json!({"training": {"lr_power": 2.0, "lr_scheduler_type": "polynomial"}}),
            json!({"training": {"lr_decay_steps": 50, "decay_type": "linear", "min_lr_ratio": 0.1,
                "lr_scheduler_type": "warmup_stable_decay"}}),
        ] {
            assert_eq!(found(&right), "");
        }
    }

    #[test]
    fn keys_of_another_optimizer() {
        let muon = json!({"nesterov": false, "adjust_lr_fn": "original"});
        let keys =
            json!({"optim": "lion", "adam_epsilon": 1e-6, "adam_bias_correction": false, "muon": muon});
        insta::assert_snapshot!(found(&json!({"training": keys})), @"
        `training.adam_bias_correction` is given, but `training.optim: lion` does not read it
        `training.adam_epsilon` is given, but `training.optim: lion` does not read it
        `training.muon.nesterov` is given, but `training.optim: lion` does not read it
        `training.muon.adjust_lr_fn` is given, but `training.optim: lion` does not read it
        ");
        for right in [
            json!({"training": {"optim": "lion", "adam_beta1": 0.95, "adam_beta2": 0.98}}),
            json!({"training": {"optim": "muon", "adam_epsilon": 1e-6, "muon": {"momentum": 0.9, "ns_steps": 4}}}),
            json!({"training": {"optim": "stable_adamw", "adam_epsilon": 1e-6, "adam_bias_correction": false}}),
        ] {
            assert_eq!(found(&right), "");
        }
    }

    #[test]
    fn keys_of_rules_that_are_off() {
        let data = json!({"data": {
            "packing": {"separator": false, "window_documents": 16},
            "deduplication": {"shingle_words": 3, "memory_bytes": 2_097_152},
            "contamination": {"action": "report", "ngram_words": 8},
            "filters": {"language": {"min_letters": 20}, "perplexity": {"order": 4}},
            "sources": [{"files": ["a"], "format": "jsonl", "document": "line"},
                {"files": ["b"], "format": "text", "field": "body"}],
        }, "training": {"batch_size_ramp": {"start_micro_batches": 2}}});
        insta::assert_snapshot!(found(&data), @"
        `data.packing.separator` is given, but `data.packing.mode: segments` does not read it
        `data.packing.window_documents` is given, but `data.packing.mode: segments` does not read it
        `data.sources.0.document` is given, but only plain text is cut into documents
        `data.sources.1.field` is given, but plain text has no fields
        `data.deduplication.shingle_words` is given, but neither `exact` nor `near_threshold` is set
        `data.deduplication.memory_bytes` is given, but neither `exact` nor `near_threshold` is set
        `data.filters.language.min_letters` is given, but `data.filters.language.expected` is empty
        `data.filters.perplexity.order` is given, but `data.filters.perplexity.max_perplexity` is not set
        `data.contamination.action` is given, but `data.contamination.files` is empty
        `data.contamination.ngram_words` is given, but `data.contamination.files` is empty
        `training.batch_size_ramp.start_micro_batches` is given, but `training.batch_size_ramp.steps` is 0
        ");
        for right in [
            json!({"data": {"packing": {"mode": "full_sentences", "separator": false}}}),
            json!({"data": {"packing": {"mode": "best_fit", "window_documents": 16}}}),
            json!({"data": {"deduplication": {"exact": true, "memory_bytes": 2_097_152}}}),
            json!({"data": {"deduplication": {"near_threshold": 0.9, "shingle_words": 3}}}),
            json!({"data": {"contamination": {"files": ["dev.csv"], "ngram_words": 8}}}),
            json!({"data": {"filters": {"language": {"detect": true, "candidates": ["fi", "sv"]}}}}),
            json!({"data": {"filters": {"language": {"expected": ["fi"], "min_confidence": 0.5}}}}),
            json!({"data": {"sources": [{"files": ["a"], "document": "line", "field": "body"}]}}),
        ] {
            assert_eq!(found(&right), "", "{right}");
        }
    }

    #[test]
    fn a_sentence_to_fill_in_is_for_pretraining() {
        let all = json!({"run": {"sample_text": "a <mask>"}, "model": "m",
            "data": {"train_file": "a.csv", "eval_file": "b.csv"}});
        let config: FinetuneConfig = serde_json::from_value(all).expect("has the shape");
        let problems = validate_finetune(&config);
        insta::assert_snapshot!(problems[0], @"
        run.sample_text: `run.sample_text` is given, but a classifier fills in no masks
          hint: remove it: it is for pretraining
        ");
        assert_eq!(problems.len(), 1);
    }
}
