//! Checks of the run, masking and the labelled examples.

use std::collections::BTreeSet;
use std::path::Path;

use crate::validate::Findings;
use crate::validate::training::time;
use crate::{ClassifyData, FinetuneConfig, FinetuneTask, Goal, MlmConfig, PretrainConfig, RunSection};
use base::{quantity, secrets};
use stores::is_url;

pub(super) fn run(run: &RunSection, findings: &mut Findings) {
    if run.output_dir.to_str().is_some_and(is_url) {
        let message = "`run.output_dir` is a URL, and a run writes to a disk".to_string();
        findings.add(&["run.output_dir"], message, "name a folder; `run.upload_to` copies it into a bucket");
    }
    limits(run, findings);
    upload_to(run, findings);
    time("run.stop_within", &run.stop_within, "remove it to wait for 60 seconds", findings);
}

fn limits(run: &RunSection, findings: &mut Findings) {
    if run.budget_usd.is_some() && !run.usd_per_hour.is_some_and(|price| price > 0.0) {
        let message = "`run.budget_usd` is given, and not what an hour costs".to_string();
        let hint = "set `run.usd_per_hour`: what the machine costs";
        findings.add(&["run.usd_per_hour", "run.budget_usd"], message, hint);
    }
    if let Some(Err(e)) = run.deadline.as_deref().map(quantity::parse_moment) {
        let (message, hint) = split(&e.to_string());
        findings.add(&["run.deadline"], format!("`run.deadline`: {message}"), hint);
    }
}

/// Splits a message at its first colon into message and hint.
fn split(text: &str) -> (String, String) {
    let (message, hint) = text.split_once(": ").unwrap_or((text, ""));
    (message.to_string(), hint.to_string())
}

/// Refuses keys that depend on the number of steps if a limit may make the steps fewer.
pub(super) fn unlimited(config: &PretrainConfig, findings: &mut Findings) {
    let Some(limit) = config.run.limit() else { return };
    let counted = [
        ("training.phases", !config.training.phases.is_empty()),
        ("mlm.mlm_probability_end", config.mlm.mlm_probability_end.is_some()),
    ];
    for (path, _) in counted.into_iter().filter(|(_, is_given)| *is_given) {
        let message = format!("`{path}` follows the steps, which `{limit}` can make fewer");
        findings.add(&[limit, path], message, "keep one of the two; `training.max_train_time` cuts off");
    }
}

fn upload_to(run: &RunSection, findings: &mut Findings) {
    if let Some(url) = run.upload_to.as_deref().filter(|url| !is_url(url) || url.starts_with("http")) {
        let message = format!("`run.upload_to` is `{}`, and is no folder of a bucket", secrets::url(url));
        findings.add(
            &["run.upload_to"],
            message,
            "write `s3://bucket/runs/first`, or with `gs://` or `az://`",
        );
    }
}

pub(super) fn masking(mlm: &MlmConfig, findings: &mut Findings) {
    let (mask, random) = mlm.replaced_shares();
    let both_right = (0.0..=1.0).contains(&mask) && (0.0..=1.0).contains(&random);
    // The tolerance accepts 0.9 + 0.1 regardless of rounding.
    if both_right && mask + random > 1.0 + 1e-9 {
        let message = format!(
            "`mlm.mask_replace_prob` {mask} and `mlm.random_replace_prob` {random} are more than 1 together"
        );
        findings.add(
            &["mlm.mask_replace_prob", "mlm.random_replace_prob"],
            message,
            "what is left of 1 stays unchanged: `0.8` and `0.1` are usual",
        );
    }
}

/// Checks that the sample text has a mask: that of the family for a new tokenizer, either form that new
/// tokenizers have for the tokenizer of a model folder. For an existing tokenizer, the command checks.
pub(super) fn sample_text(config: &PretrainConfig, findings: &mut Findings) {
    let Some(text) = config.run.sample_text.as_ref().filter(|_| config.tokenizer.path.is_none()) else {
        return;
    };
    let masks = ["<mask>", "[MASK]"];
    let Some(found) = masks.into_iter().find(|mask| text.contains(mask)) else {
        findings.add(
            &["run.sample_text"],
            "`run.sample_text` has no mask to fill in".to_string(),
            "put `<mask>` (RoBERTa) or `[MASK]` (BERT, ELECTRA) where a word should be guessed",
        );
        return;
    };
    let family = config.model().map(|model| model.family).filter(|_| config.model.path.is_none());
    let Some(family) = family else { return };
    let mask = family.special_names().mask;
    if !text.contains(mask) {
        findings.add(
            &["run.sample_text"],
            format!("`run.sample_text` has `{found}`, and the mask of {} is `{mask}`", family.title),
            "a word is guessed where the mask stands",
        );
    }
}

pub(super) fn examples(config: &FinetuneConfig, findings: &mut Findings) {
    let data = &config.data;
    files(data, findings);
    columns(config, findings);
    tagged_columns(config, findings);
    repeated("data.labels", &data.labels, findings);
    if config.task == FinetuneTask::Regression && !data.labels.is_empty() && data.label_column.is_some() {
        let message = "`data.label_column` is the column of one number, and `data.labels` names columns too";
        findings.add(&["data.label_column", "data.labels"], message.to_string(), "remove one of the two");
    }
    if data.labels.len() == 1 && matches!(config.goal(), Goal::Label | Goal::Tags) {
        findings.add(
            &["data.labels"],
            "`data.labels` has one label, there is nothing to tell apart".to_string(),
            "name at least two, or none",
        );
    }
    repeated("seeds", &config.seeds, findings);
    if let Some(limit) = config.run.limit().filter(|_| config.seeds.len() > 1) {
        let message = format!("`{limit}` limits one run, and `seeds` names {}", config.seeds.len());
        findings.add(&[limit, "seeds"], message, "train one seed (`--seeds 1`), or remove the limit");
    }
    if data.max_test_samples.is_some() && data.test_file.is_none() {
        let message = "`data.max_test_samples` is given, and there is no `data.test_file`".to_string();
        findings.add(&["data.max_test_samples"], message, "remove it, or name the file");
    }
}

fn is_missing(file: &Path) -> bool {
    file.as_os_str().is_empty()
}

fn files(data: &ClassifyData, findings: &mut Findings) {
    let name = "name a .csv, .tsv, .jsonl or .parquet file";
    if is_missing(&data.train_file) {
        findings.add(&["data.train_file", "data"], "`data.train_file` is missing".to_string(), name);
    }
    match data.eval_fraction {
        None if is_missing(&data.eval_file) => {
            let hint = format!("{name}, or split the training file with `data.eval_fraction: 0.1`");
            findings.add(&["data.eval_file", "data"], "`data.eval_file` is missing".to_string(), hint);
        }
        Some(_) if !is_missing(&data.eval_file) => {
            let message = "`data.eval_file` and `data.eval_fraction` are both given".to_string();
            findings.add(&["data.eval_fraction", "data.eval_file"], message, "keep one of the two");
        }
        _ => {}
    }
}

fn columns(config: &FinetuneConfig, findings: &mut Findings) {
    let data = &config.data;
    let named = [
        ("text_column", &data.text_column),
        ("text_pair_column", &data.text_pair_column),
        ("label_column", &data.label_column),
    ];
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (key, column) in named {
        let Some(column) = column else { continue };
        let path = format!("data.{key}");
        if let Some((other, _)) = seen.iter().find(|(_, name)| name == column) {
            let message = format!("`{path}` and `data.{other}` name the same column `{column}`");
            findings.add(&[&path, &format!("data.{other}")], message, "each needs a column of its own");
        }
        seen.push((key, column));
    }
}

/// Checks the keys that only tagged words have, and those that they cannot have.
fn tagged_columns(config: &FinetuneConfig, findings: &mut Findings) {
    let data = &config.data;
    let defaults = ClassifyData::default();
    if config.task == FinetuneTask::TokenClassify {
        for (path, column) in [("data.token_column", data.token_column), ("data.tag_column", data.tag_column)]
        {
            if column == 0 {
                let message = format!("`{path}` is 0, columns count from 1, and from the end with -1");
                findings.add(&[path], message, "`1` is the first, `-1` the last");
            }
        }
        if data.token_column == data.tag_column {
            let message = format!("`data.token_column` and `data.tag_column` are both {}", data.tag_column);
            findings.add(
                &["data.tag_column", "data.token_column"],
                message,
                "each needs a column of its own",
            );
        }
        renamed_types(data, findings);
        if data.text_pair_column.is_some() {
            let message = "`data.text_pair_column` is for pairs of texts, not for tagged words".to_string();
            findings.add(&["data.text_pair_column", "task"], message, "remove it");
        }
        return;
    }
    let given = [
        ("data.token_column", data.token_column != defaults.token_column),
        ("data.tag_column", data.tag_column != defaults.tag_column),
        ("data.tag_scheme", data.tag_scheme != defaults.tag_scheme),
        ("data.rename_types", data.rename_types != defaults.rename_types),
        ("data.strict", data.strict != defaults.strict),
    ];
    for (path, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
        let message = format!("`{path}` is for tagged words, and `task` is another one");
        findings.add(&[path, "task"], message, "remove it, or set `task: token-classify`");
    }
}

fn renamed_types(data: &ClassifyData, findings: &mut Findings) {
    let from: Vec<&String> = data.rename_types.iter().flat_map(|renamed| &renamed.from).collect();
    repeated("data.rename_types", &from, findings);
    for (index, renamed) in data.rename_types.iter().enumerate() {
        findings.text(&format!("data.rename_types.{index}.to"), renamed.to.trim().is_empty(), "MISC");
    }
}

fn repeated<T: Ord + std::fmt::Display>(path: &str, values: &[T], findings: &mut Findings) {
    let mut seen = BTreeSet::new();
    for (index, value) in values.iter().enumerate() {
        if !seen.insert(value) {
            let at = format!("{path}.{index}");
            findings.add(&[&at, path], format!("`{path}` names `{value}` twice"), "keep one of the two");
        }
    }
}
