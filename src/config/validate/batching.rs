//! Checks of shuffling in windows and of the ramp of the batch size.

use crate::validate::Findings;
use crate::{FinetuneConfig, PretrainConfig, TrainingConfig};

pub(super) fn batching(config: &PretrainConfig, findings: &mut Findings) {
    windows(config, findings);
    ramp(&config.training, findings);
}

/// Refuses keys of fine-tuning that only pretraining supports.
pub(super) fn finetune(config: &FinetuneConfig, findings: &mut Findings) {
    let given = [
        ("phases", !config.training.phases.is_empty()),
        ("batch_size_ramp", config.training.batch_size_ramp.steps > 0),
    ];
    for (key, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
        let path = format!("training.{key}");
        findings.add(
            &[&path],
            format!("`{path}` is for pretraining, fine-tuning has one batch size"),
            "remove it",
        );
    }
}

/// Refuses keys that contradict shuffling in windows: within a window, an epoch takes each of its documents
/// once and no others.
fn windows(config: &PretrainConfig, findings: &mut Findings) {
    const KEY: &str = "data.shuffle_window_shards";
    if config.data.shuffle_window_shards.is_none() {
        return;
    }
    let sources = &config.data.sources;
    let weighted = sources.iter().position(|source| (source.weight - 1.0).abs() > 0.0);
    let changing = config.training.phases.iter().position(|phase| !phase.sources.is_empty());
    let conflicts = [
        (weighted.map(|at| format!("data.sources.{at}.weight")), "takes some documents more or less often"),
        (
            changing.map(|at| format!("training.phases.{at}.sources")),
            "takes some documents more or less often",
        ),
        (config.task().sentence_pairs().map(|_| "task".to_string()), "pairs documents from anywhere"),
    ];
    for (path, why) in conflicts.into_iter().filter_map(|(path, why)| Some((path?, why))) {
        let message = format!("`{path}` {why}, and `{KEY}` keeps to a few shards at a time");
        findings.add(&[KEY, &path], message, "leave one of the two out");
    }
}

fn ramp(training: &TrainingConfig, findings: &mut Findings) {
    let ramp = &training.batch_size_ramp;
    if ramp.steps == 0 {
        return;
    }
    let most = training
        .phases
        .iter()
        .filter_map(|p| p.gradient_accumulation_steps)
        .fold(training.gradient_accumulation_steps, usize::max);
    if ramp.start_micro_batches >= most && most > 0 {
        let path = "training.batch_size_ramp.start_micro_batches";
        let message = format!(
            "`{path}` is {}, there is no ramp up to {most} `gradient_accumulation_steps`",
            ramp.start_micro_batches
        );
        findings.add(
            &[path, "training.gradient_accumulation_steps"],
            message,
            "start with fewer, or cut the batch into more and smaller micro-batches",
        );
    }
    needs_max_steps("batch_size_ramp", training, findings);
}

pub(super) fn needs_max_steps(key: &str, training: &TrainingConfig, findings: &mut Findings) {
    if training.max_steps == -1 {
        let path = format!("training.{key}");
        let message = format!(
            "`{path}` needs `training.max_steps`: epochs do not say how many steps there are when their sizes change"
        );
        findings.add(&[&path, "training.max_steps"], message, "set `training.max_steps`");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{FinetuneConfig, PretrainConfig, validate_finetune, validate_pretrain};

    /// Returns the problems of a configuration with these sections, a line each.
    fn found(data: &Value, training: &Value, mlm: &Value) -> String {
        let mut all = json!({"data": {"sources": [{"files": ["a.txt"]}]}, "model": {"roberta": {}}, "training": training, "mlm": mlm});
        all["data"].as_object_mut().unwrap().extend(data.as_object().unwrap().clone());
        let config: PretrainConfig = serde_json::from_value(all).unwrap();
        validate_pretrain(&config).iter().map(|p| p.message.clone()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn right_sections_pass() {
        let none = json!({});
        assert_eq!(found(&none, &none, &none), "");
        let phases = json!({"max_steps": 100, "gradient_accumulation_steps": 4, "batch_size_ramp": {"start_micro_batches": 1, "steps": 10},
            "phases": [{"until_step": 50, "max_seq_length": 64}, {"until_step": 90, "max_seq_length": 128, "per_device_train_batch_size": 2}]});
        let packing = json!({"packing": {"mode": "best_fit", "window_documents": 16}, "loader_workers": 4});
        let mlm = json!({"masking": "span", "mlm_probability": 0.3, "mlm_probability_end": 0.15});
        assert_eq!(found(&packing, &phases, &mlm), "");
    }

    #[test]
    fn each_wrong_value_is_found() {
        let none = json!({});
        let workers = json!({"loader_workers": 0, "packing": {"mode": "best_fit", "window_documents": 0}});
        assert_eq!(
            found(&workers, &none, &none),
            "`data.packing.window_documents` is 0, it must be at least 1\n`data.loader_workers` is 0, it must be at least 1"
        );
        let windows = json!({"shuffle_window_shards": 0,
            "sources": [{"files": ["a.txt"], "weight": 2.0, "name": "a"}, {"files": ["b.txt"]}]});
        let phases = json!({"max_steps": 9, "phases": [{"until_step": 5, "max_seq_length": 64, "sources": [{"name": "a", "weight": 1.0}]}]});
        insta::assert_snapshot!(found(&windows, &phases, &none), @r"
        `data.shuffle_window_shards` is 0, it must be at least 1
        `data.sources.0.weight` takes some documents more or less often, and `data.shuffle_window_shards` keeps to a few shards at a time
        `training.phases.0.sources` takes some documents more or less often, and `data.shuffle_window_shards` keeps to a few shards at a time
        ");
        let phases = json!({"phases": [{"until_step": 5, "max_seq_length": 64}, {"until_step": 5, "max_seq_length": 32}]});
        insta::assert_snapshot!(found(&none, &phases, &none), @r"
        `training.phases.1.until_step` is 5, it must be above 5
        `training.phases.1.max_seq_length` is 32, it must lie between 64 and `data.max_seq_length` 128
        `training.phases` needs `training.max_steps`: epochs do not say how many steps there are when their sizes change
        ");
        let longer = json!({"max_steps": 9, "phases": [{"until_step": 5, "max_seq_length": 256}]});
        assert!(found(&none, &longer, &none).contains("must lie between 3 and `data.max_seq_length` 128"));
        let ramp = json!({"max_steps": 9, "batch_size_ramp": {"start_micro_batches": 2, "steps": 5}});
        insta::assert_snapshot!(found(&none, &ramp, &none), @"`training.batch_size_ramp.start_micro_batches` is 2, there is no ramp up to 1 `gradient_accumulation_steps`");
        let end = json!({"mlm_probability_end": 1.5});
        assert_eq!(
            found(&none, &none, &end),
            "`mlm.mlm_probability_end` is 1.5, it must be above 0 and at most 1"
        );
    }

    #[test]
    fn fine_tuning_refuses_keys_of_pretraining() {
        let all = json!({"model": "m", "data": {"train_file": "a.csv", "eval_file": "b.csv"},
            "training": {"max_steps": 9, "phases": [{"until_step": 5, "max_seq_length": 64}]}});
        let config: FinetuneConfig = serde_json::from_value(all).unwrap();
        let problems = validate_finetune(&config);
        assert_eq!(problems.len(), 1);
        assert_eq!(
            problems[0].message,
            "`training.phases` is for pretraining, fine-tuning has one batch size"
        );
    }
}
