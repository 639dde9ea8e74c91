//! What a run would do: sizes, steps and stages, from the configuration and what lies in its folders already.

use anyhow::Result;

use crate::batches::BatchPlan;
use crate::batches::StepShape;
use crate::config::PretrainConfig;
use crate::config::TrainingConfig;
use crate::fs;
use crate::machine::Machine;
use crate::models::memory::PROCESS_BYTES;
use crate::models::memory::Prediction;
use crate::models::memory::checkpoint_bytes;
use crate::prepare::Space;
use crate::quantity::format_bytes;
use crate::quantity::format_count;
use crate::shards::Manifest;
use crate::tasks::list::shapes;
use crate::tasks::pretraining::mixes::Mixes;
use crate::tasks::pretraining::planned_model;
use crate::tasks::run::Shapes;
use crate::train::batch_size;
use crate::train::decay;
use crate::train::room;

/// The lines of `pretrain --dry-run`.
pub(super) fn pretrain(config: &PretrainConfig, machine: &Machine) -> Result<Vec<String>> {
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
    let fit = batch_size::fit(&config.training, &shapes, machine)?;
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
    row("memory", memory(&config, machine, &shapes));
    let checkpoint = checkpoint_bytes(parameters);
    row("disk", disk(checkpoint, &config.training));
    if config.training.save_in_background {
        let copy = format_bytes(checkpoint);
        row("saving", format!("{copy} more memory; where twice that is not free, steps wait for the disk"));
    }
    let update = |shape: StepShape| {
        let rows = (shape.rows_per_micro_batch * shape.micro_batches) as u64;
        format!("{rows} rows, at most {} tokens", format_count(rows * shape.max_seq_length as u64))
    };
    let plan = BatchPlan::new(&config.training, config.data.max_seq_length);
    let more = Changing::new(&config, model.encoder.global_rope_theta);
    for phase in &config.training.phases {
        let last = phase.until_step.saturating_sub(1);
        row(&format!("update {}", phase.until_step), format!("{}{}", update(plan.at(last)), more.at(last)));
    }
    row("update", format!("{}{}", update(plan.at(u64::MAX)), more.at(u64::MAX)));
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
    let folder = config.prepared_dir();
    let state = |name: &str| if fs::exists(&folder.join(name)) { "there" } else { "to be made" };
    row("tokenizer", format!("{} in `{}`", state("tokenizer"), folder.display()));
    row("shards", format!("{} in `{}`", state("shards/manifest.json"), folder.display()));
    if !fs::exists(&folder.join("shards/manifest.json")) {
        row(
            "disk for data",
            Space::predict(&config)
                .map_or_else(|e| format!("cannot be told: {e}"), |space| space.to_string()),
        );
    }
    row("output", config.run.output_dir.display().to_string());
    Ok(lines)
}

/// What phases change beside the sizes of updates.
struct Changing<'a> {
    training: &'a TrainingConfig,
    theta: f64,
    mixes: Mixes,
}

impl<'a> Changing<'a> {
    /// Of a run whose angles have the base `theta` where no phase says otherwise.
    fn new(config: &'a PretrainConfig, theta: f64) -> Self {
        // Shares of sources can be told once their tokens are counted.
        let manifest = Manifest::read(&config.prepared_dir().join("shards")).ok();
        Self { training: &config.training, theta, mixes: Mixes::new(config, manifest.as_ref()) }
    }

    /// What holds in the step after `steps_done`, each with a semicolon before it.
    fn at(&self, steps_done: u64) -> String {
        let (phases, phase) = (&self.training.phases, self.training.phase_at(steps_done));
        let mut parts = vec![String::new()];
        if phases.iter().any(|phase| phase.learning_rate.is_some()) {
            let peak = phase.and_then(|phase| phase.learning_rate).unwrap_or(self.training.learning_rate);
            parts.push(format!("learning rate up to {peak}"));
        }
        if phases.iter().any(|phase| phase.global_rope_theta.is_some()) {
            let theta = phase.and_then(|phase| phase.global_rope_theta).unwrap_or(self.theta);
            parts.push(format!("global_rope_theta {theta}"));
        }
        if self.mixes.change() {
            parts.push(self.mixes.text_at(steps_done));
        }
        parts.join("; ")
    }
}

/// What a checkpoint takes, and all of them at most.
fn disk(checkpoint: u64, training: &TrainingConfig) -> String {
    let total_steps = u64::try_from(training.max_steps).ok();
    let [one, most] =
        [checkpoint, room::most_checkpoint_bytes(checkpoint, training, total_steps)].map(format_bytes);
    let text = format!("{one} a checkpoint, {most} at most");
    match training.save_total_bytes {
        Some(bytes) if bytes < room::bytes_always_kept(checkpoint, training) => {
            let bytes = format_bytes(bytes);
            format!("{text}; `training.save_total_bytes` {bytes} is less than those take that always stay")
        }
        _ => text,
    }
}

/// The peak of the largest step of all phases.
fn memory(config: &PretrainConfig, machine: &Machine, shapes: &Shapes) -> String {
    let plan = BatchPlan::new(&config.training, config.data.max_seq_length);
    let prediction = shapes.prediction(plan.most_tokens_at_once() as u64, &config.training, machine.place());
    let Prediction { state_bytes, activation_bytes, temporary_bytes, evaluation_bytes } = prediction;
    let [total, state, besides] =
        [prediction.total(), state_bytes, temporary_bytes + PROCESS_BYTES].map(format_bytes);
    let of_state = format!("{total} at the peak: {state} of values, gradients and moments");
    if evaluation_bytes > prediction.step_bytes() {
        let [evaluation, besides] = [evaluation_bytes, PROCESS_BYTES].map(format_bytes);
        return format!(
            "{of_state}, {evaluation} of evaluation (`training.per_device_eval_batch_size` {}), {besides} besides",
            config.training.per_device_eval_batch_size
        );
    }
    format!("{of_state}, {} of activations, {besides} besides", format_bytes(activation_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_is_that_of_the_number_or_of_the_bytes_whichever_is_less() {
        let disk = |save_total_limit, save_total_bytes| {
            disk(1 << 20, &TrainingConfig { save_total_limit, save_total_bytes, ..TrainingConfig::default() })
        };
        assert_eq!(disk(10, None), "1MiB a checkpoint, 12MiB at most");
        assert_eq!(disk(10, Some(5 << 20)), "1MiB a checkpoint, 6MiB at most");
        assert_eq!(disk(2, Some(50 << 20)), "1MiB a checkpoint, 4MiB at most");
        let little = disk(10, Some(1 << 20));
        assert!(
            little.starts_with("1MiB a checkpoint, 4MiB at most; `training.save_total_bytes`"),
            "{little}"
        );
        assert!(disk(usize::MAX, None).ends_with("at most"));
    }
}
