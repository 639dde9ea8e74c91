//! `pretrain --dry-run`: predicts sizes, steps, memory and disk of a run, from the configuration and the
//! prepared data that is there already.

use anyhow::Result;

use crate::batches::{BatchPlan, StepShape};
use crate::commands::forecast;
use crate::config::{PretrainConfig, TrainingConfig, saved};
use crate::machine::Machine;
use crate::prepare::Space;
use crate::quantity::{format_bytes, format_count};
use crate::shards::Manifest;
use crate::tasks::list::shapes;
use crate::tasks::pretraining::mixes::Mixes;
use crate::tasks::pretraining::planned_model;
use crate::train::{auto_batch_size, decay};
use crate::{fs, prepare};

/// Returns the lines of `pretrain --dry-run`; `outlook` is a note about an earlier run in the folder.
pub(super) fn pretrain(
    config: &PretrainConfig,
    machine: &Machine,
    outlook: Option<String>,
) -> Result<Vec<String>> {
    prepare::require_same_settings(config)?;
    let mut config = config.clone();
    let mut lines = vec!["dry run: nothing is written".to_string()];
    let mut row = |name: &str, text: String| lines.push(format!("  {name:20} {text}"));
    row("compute", machine.summary());
    machine.policy.notes.iter().for_each(|note| row("", note.clone()));
    if let Some(reason) = &machine.without_gpu {
        row("", format!("no GPU: {reason}"));
    }
    let model = planned_model(&config)?;
    let shapes = shapes(&config, &model)?;
    let fit = auto_batch_size::fit(&config.training, &shapes, machine)?;
    let parameters = shapes.outline.num_parameters();
    let shape = &model.encoder;
    let sizes = format!(
        "{} x {}, vocabulary {}",
        shape.num_hidden_layers,
        shape.hidden_size,
        format_count(shape.vocab_size as u64)
    );
    row("model", format!("{} {sizes}: {} parameters", model.family.name, format_count(parameters)));
    if let Some(fit) = fit {
        row("batch", fit.to_string());
        config.training = fit.training;
    }
    row("memory", forecast::memory(&config.training, config.data.max_seq_length, machine, &shapes));
    let checkpoint = shapes.checkpoint_bytes(&config.training);
    row("disk", forecast::disk(checkpoint, &config.training, &config.run));
    if config.training.save_in_background {
        let copy = format_bytes(checkpoint);
        row(
            "saving",
            format!("{copy} more memory; if less than twice that is free, training pauses while saving"),
        );
    }
    let plan = BatchPlan::new(&config.training, config.data.max_seq_length);
    let phases = PhaseSettings::new(&config, model.encoder.global_rope_theta);
    for phase in &config.training.phases {
        let last = phase.until_step.saturating_sub(1);
        let text = format!("{}{}", update_size(plan.at(last)), phases.text_at(last));
        row(&format!("update {}", phase.until_step), text);
    }
    row("update", format!("{}{}", update_size(plan.at(u64::MAX)), phases.text_at(u64::MAX)));
    let steps = match config.training.max_steps {
        steps if steps >= 0 => format_count(steps as u64),
        _ => format!("{} epochs (counted when the shards are there)", config.training.num_train_epochs),
    };
    row("steps", steps);
    if config.evaluation.has_probes() {
        let every = match config.evaluation.probe_steps {
            0 => "with each evaluation".to_string(),
            steps => format!("every {} steps", format_count(steps)),
        };
        let files = config.evaluation.probes.iter().chain(&config.evaluation.minimal_pairs);
        let files: Vec<String> = files.map(|path| format!("`{}`", path.display())).collect();
        row(
            "probes",
            format!("of {}, {every}; their time and memory are not in this forecast", files.join(", ")),
        );
    }
    if let Some(text) = decay::told(&config) {
        row("decay", text);
    }
    if let Some(limit) = &config.training.max_train_time {
        let cut = "if time runs out first, training ends before the learning rate has decayed";
        row("time limit", format!("{limit}; {cut}"));
    }
    if let Some(text) = forecast::limits(&config.run)? {
        row("limit", format!("{text}; there are fewer steps if it does not suffice for all"));
    }
    let folder = config.prepared_dir();
    for (name, file) in [("tokenizer", "tokenizer"), ("shards", "shards/manifest.json")] {
        let state = if fs::exists(&folder.join(file)) { "there" } else { "to be made" };
        row(name, format!("{state} in `{}`", folder.display()));
    }
    if config.tokenizer.path.is_none() {
        let table = saved(&config.tokenizer);
        row("", format!("`tokenizer.algorithm` {}", table["algorithm"].as_str().unwrap_or_default()));
    }
    if !fs::exists(&folder.join("shards/manifest.json")) {
        row("disk for data", Space::predict(&config)?.to_string());
    }
    let outlook = outlook.map(|text| format!(", {text}")).unwrap_or_default();
    row("output", format!("{}{outlook}", config.run.output_dir.display()));
    Ok(lines)
}

fn update_size(shape: StepShape) -> String {
    let rows = (shape.rows_per_micro_batch * shape.micro_batches) as u64;
    format!("{rows} rows, at most {} tokens", format_count(rows * shape.max_seq_length as u64))
}

/// The settings that phases change, other than the size of updates.
struct PhaseSettings<'a> {
    training: &'a TrainingConfig,
    /// RoPE base of the model.
    theta: f64,
    mixes: Mixes,
}

impl<'a> PhaseSettings<'a> {
    /// Returns the settings of a run whose RoPE base is `theta` unless a phase changes it.
    fn new(config: &'a PretrainConfig, theta: f64) -> Self {
        // Shares of sources are known once the shards have counted their tokens.
        let manifest = Manifest::read(&config.prepared_dir().join("shards")).ok();
        Self { training: &config.training, theta, mixes: Mixes::new(config, manifest.as_ref()) }
    }

    /// Returns the settings of the step after `steps_done` steps as text, a semicolon before each.
    fn text_at(&self, steps_done: u64) -> String {
        let phases = &self.training.phases;
        let phase = self.training.phase_at(steps_done);
        let mut parts = vec![String::new()];
        if phases.iter().any(|phase| phase.learning_rate.is_some()) {
            let peak = phase.and_then(|phase| phase.learning_rate).unwrap_or(self.training.learning_rate);
            parts.push(format!("learning rate up to {peak}"));
        }
        if phases.iter().any(|phase| phase.global_rope_theta.is_some()) {
            let theta = phase.and_then(|phase| phase.global_rope_theta).unwrap_or(self.theta);
            parts.push(format!("global_rope_theta {theta}"));
        }
        if self.training.causal_steps() > 0 {
            let is_causal = steps_done < self.training.causal_steps();
            parts.push(if is_causal { "causal" } else { "masked tokens" }.to_string());
        }
        if self.mixes.change() {
            parts.push(self.mixes.text_at(steps_done));
        }
        parts.join("; ")
    }
}
