//! Checks of phases: their order and their changes.

use crate::validate::Findings;
use crate::validate::batching::needs_max_steps;
use crate::{PhaseObjective, PretrainConfig, PretrainTask, SourceConfig, TrainingPhase};

pub(super) fn phases(config: &PretrainConfig, findings: &mut Findings) {
    let training = &config.training;
    let mut before: Option<&TrainingPhase> = None;
    for (index, phase) in training.phases.iter().enumerate() {
        let path = format!("training.phases.{index}");
        order(&path, phase, before, config.data.max_seq_length, findings);
        rows(&path, phase, findings);
        objective(&path, phase, before, config, findings);
        theta(&path, phase, config, findings);
        sources(&path, phase, &config.data.sources, findings);
        before = Some(phase);
    }
    if !training.phases.is_empty() {
        needs_max_steps("phases", training, findings);
    }
}

/// Checks that steps and lengths grow from phase to phase.
fn order(
    path: &str,
    phase: &TrainingPhase,
    before: Option<&TrainingPhase>,
    max_seq_length: usize,
    findings: &mut Findings,
) {
    let until = format!("{path}.until_step");
    let length = format!("{path}.max_seq_length");
    let (last_step, last_length) = before.map_or((0, 3), |p| (p.until_step, p.max_seq_length));
    if phase.until_step <= last_step {
        let message = format!("`{until}` is {}, it must be above {last_step}", phase.until_step);
        findings.add(
            &[&until, path],
            message,
            "phases follow each other; each names its last step, counted from the beginning of the run",
        );
    }
    if phase.max_seq_length < last_length || phase.max_seq_length > max_seq_length {
        let message = format!(
            "`{length}` is {}, it must lie between {last_length} and `data.max_seq_length` {max_seq_length}",
            phase.max_seq_length
        );
        findings.add(
            &[&length, path],
            message,
            "sequences may only grow from phase to phase, up to `data.max_seq_length`",
        );
    }
}

fn rows(path: &str, phase: &TrainingPhase, findings: &mut Findings) {
    let rows = phase.per_device_train_batch_size.unwrap_or(1);
    // Token positions of a batch are 32-bit numbers.
    if rows.saturating_mul(phase.max_seq_length) > i32::MAX as usize {
        let message =
            format!("`{path}`: {rows} rows of {} tokens are over 2^31 tokens", phase.max_seq_length);
        findings.add(&[path], message, "use more `gradient_accumulation_steps` for a larger batch");
    }
}

/// Checks that causal phases come first, and that the task and the family have them; the family of a model
/// folder is known only when it is read.
fn objective(
    path: &str,
    phase: &TrainingPhase,
    before: Option<&TrainingPhase>,
    config: &PretrainConfig,
    findings: &mut Findings,
) {
    if phase.objective != PhaseObjective::Causal {
        return;
    }
    let path = format!("{path}.objective");
    if before.is_some_and(|before| before.objective != PhaseObjective::Causal) {
        let message = format!("`{path}` is `causal` after a phase with masked tokens");
        findings.add(&[&path], message, "put the causal phases first");
    }
    if config.task() != PretrainTask::MaskedLm {
        let message = format!("`{path}` is `causal`, which only `task: masked_lm` can begin with");
        let hint = "pretrain with `task: masked_lm` first and go on from its folder with `--model`";
        findings.add(&[&path, "task"], message, hint);
    }
    let family = config.model().map(|model| model.family);
    if let Some(family) = family.filter(|family| !family.has_causal_attention()) {
        let message = format!("`{path}` is `causal`, but attention of {} has no causal form", family.title);
        findings.add(&[&path], message, "take a family with absolute or rotary positions");
    }
}

/// Checks the RoPE base, which only some families have; the family of a model folder is known only when it is
/// read.
fn theta(path: &str, phase: &TrainingPhase, config: &PretrainConfig, findings: &mut Findings) {
    let Some(family) = config.model().map(|model| model.family) else { return };
    if phase.global_rope_theta.is_some() && family.key("global_rope_theta").is_none() {
        let path = format!("{path}.global_rope_theta");
        let message = format!("`{path}` is given, but {} has no `global_rope_theta`", family.title);
        findings.add(&[&path], message, "remove it: it is for `modernbert`");
    }
}

fn sources(path: &str, phase: &TrainingPhase, all: &[SourceConfig], findings: &mut Findings) {
    for (index, own) in phase.sources.iter().enumerate() {
        let named = all.iter().filter(|source| source.display_name() == own.name).count();
        let is_repeated = phase.sources[..index].iter().any(|other| other.name == own.name);
        let names: Vec<String> = all.iter().map(|source| format!("`{}`", source.display_name())).collect();
        let (mistake, hint) = match named {
            0 => ("is the name of no source", format!("there are {}", names.join(", "))),
            1 if is_repeated => ("is named twice in this phase", "keep one of the two".to_string()),
            1 => ("", String::new()),
            _ => ("is the name of several sources", "give each a `name` of its own".to_string()),
        };
        if !mistake.is_empty() {
            findings.add(
                &[&format!("{path}.sources.{index}.name"), path],
                format!("`{}` {mistake}", own.name),
                hint,
            );
        }
    }
    if !phase.sources.is_empty() && phase.weights(all).iter().all(|weight| *weight <= 0.0) {
        let message = format!("`{path}.sources` leave out every source");
        findings.add(&[&format!("{path}.sources"), path], message, "give one of them a weight above 0");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{PretrainConfig, validate_pretrain};

    /// Returns the problems of phases of a run with the sources `web` and `news`, a line each.
    fn found(model: &Value, phases: &Value) -> String {
        let sources = json!([{"files": ["web.txt"]}, {"name": "news", "files": ["b.txt"]}]);
        let all = json!({"data": {"sources": sources}, "model": model,
            "training": {"max_steps": 100, "phases": phases}});
        let config: PretrainConfig = serde_json::from_value(all).unwrap();
        validate_pretrain(&config).iter().map(|p| p.message.clone()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn rope_bases_rates_and_sources_may_change() {
        let phases = json!([
            {"until_step": 10, "max_seq_length": 64, "global_rope_theta": 1e4, "learning_rate": 1e-3},
            {"until_step": 20, "max_seq_length": 64, "sources": [{"name": "web", "weight": 0}]}]);
        assert_eq!(found(&json!({"modernbert": {}}), &phases), "");
        assert_eq!(
            found(&json!({"roberta": {}}), &phases),
            "`training.phases.0.global_rope_theta` is given, but RoBERTa has no `global_rope_theta`"
        );
    }

    #[test]
    fn causal_phases_come_first_in_families_that_have_them() {
        let causal = json!({"until_step": 10, "max_seq_length": 64, "objective": "causal"});
        let masked = json!({"until_step": 20, "max_seq_length": 64, "objective": "masked_lm"});
        assert_eq!(found(&json!({"neobert": {}}), &json!([causal, masked])), "");
        let later = json!({"until_step": 30, "max_seq_length": 64, "objective": "causal"});
        assert_eq!(
            found(&json!({"bert": {}}), &json!([causal, masked, later])),
            "`training.phases.2.objective` is `causal` after a phase with masked tokens"
        );
        assert_eq!(
            found(&json!({"mpnet": {}}), &json!([causal])),
            "`training.phases.0.objective` is `causal`, but attention of MPNet has no causal form"
        );
        assert_eq!(
            found(&json!({"electra": {}}), &json!([causal])),
            "`training.phases.0.objective` is `causal`, which only `task: masked_lm` can begin with"
        );
    }

    #[test]
    fn each_wrong_value_is_found() {
        insta::assert_snapshot!(found_in_phase(&json!({"learning_rate": 0, "global_rope_theta": -1})), @"
        `training.phases.0.learning_rate` is 0, it must be above 0
        `training.phases.0.global_rope_theta` is -1, it must lie between 1e-9 and 1e12
        ");
        let web = json!({"name": "web", "weight": 0});
        insta::assert_snapshot!(found_in_sources(&json!([{"name": "books", "weight": -1}])), @"
        `training.phases.0.sources.0.weight` is -1, it must lie between 0 and 1000
        `books` is the name of no source
        ");
        assert_eq!(found_in_sources(&json!([web, web])), "`web` is named twice in this phase");
        assert_eq!(
            found_in_sources(&json!([web, {"name": "news", "weight": 0}])),
            "`training.phases.0.sources` leave out every source"
        );
    }

    /// Returns the problems of a phase of ModernBERT with these keys.
    fn found_in_phase(more: &Value) -> String {
        let mut phase = json!({"until_step": 10, "max_seq_length": 64});
        phase.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        found(&json!({"modernbert": {}}), &json!([phase]))
    }

    fn found_in_sources(sources: &Value) -> String {
        found_in_phase(&json!({"sources": sources}))
    }
}
