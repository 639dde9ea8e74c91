//! What a run would do: sizes, steps and stages, from the configuration and what lies in its folders already.

use candle_core::DType;

use crate::batches::BatchPlan;
use crate::batches::StepShape;
use crate::config::PretrainConfig;
use crate::fs;
use crate::layers::Registry;
use crate::models::Encoder;
use crate::models::families;
use crate::quantity::format_bytes;
use crate::quantity::format_count;
use crate::shards::Space;
use crate::train::assemble::Machine;

/// f32 values kept for each parameter: the value, its gradient and two moments.
const VALUES_PER_PARAMETER: u64 = 4;

/// The lines of `pretrain --dry-run`.
pub(super) fn pretrain(config: &PretrainConfig, machine: &Machine) -> Vec<String> {
    let mut lines = vec!["dry run: nothing is written".to_string()];
    let mut row = |name: &str, text: String| lines.push(format!("  {name:20} {text}"));
    row("compute", machine.summary());
    machine.policy.notes.iter().for_each(|note| row("", note.clone()));
    if let Some(mut model) = config.model() {
        if model.encoder.vocab_size == 0 {
            model.encoder.vocab_size = config.tokenizer.vocab_size;
        }
        let mut registry = Registry::default();
        let encoder = Encoder::new(&mut registry, &model);
        families::masked_lm_head(&mut registry, &model, &encoder);
        let parameters = registry.layout().num_elements() as u64;
        let shape = &model.encoder;
        let sizes = format!("{} x {}, vocabulary {}", shape.num_hidden_layers, shape.hidden_size, format_count(shape.vocab_size as u64));
        row("model", format!("{} {sizes}: {} parameters", families::prefix(model.family), format_count(parameters)));
        // A half type has a copy of the values besides.
        let half = if machine.policy.compute == DType::F32 { 0 } else { 2 };
        let state = (4 * VALUES_PER_PARAMETER + half) * parameters;
        row("memory of state", format!("{} (values, gradients, moments; activations besides)", format_bytes(state)));
        // Weights and two moments; the newest, the best and the one being written may exist at once.
        let checkpoint = 4 * 3 * parameters;
        let kept = config.training.save_total_limit as u64 + 2;
        row("disk", format!("{} a checkpoint, {} at most", format_bytes(checkpoint), format_bytes(kept * checkpoint)));
    }
    let update = |shape: StepShape| {
        let rows = (shape.rows_per_micro_batch * shape.micro_batches) as u64;
        format!("{rows} rows, at most {} tokens", format_count(rows * shape.max_seq_length as u64))
    };
    let plan = BatchPlan::new(&config.training, config.data.max_seq_length);
    for phase in &config.training.phases {
        row(&format!("update {}", phase.until_step), update(plan.at(phase.until_step.saturating_sub(1))));
    }
    row("update", update(plan.at(u64::MAX)));
    let steps = match config.training.max_steps {
        steps if steps > 0 => format_count(steps as u64),
        _ => format!("{} epochs (counted when the shards are there)", config.training.num_train_epochs),
    };
    row("steps", steps);
    let folder = config.prepared_dir();
    let state = |name: &str| if fs::exists(&folder.join(name)) { "there" } else { "to be made" };
    row("tokenizer", format!("{} in `{}`", state("tokenizer"), folder.display()));
    row("shards", format!("{} in `{}`", state("shards/manifest.json"), folder.display()));
    if !fs::exists(&folder.join("shards/manifest.json")) {
        row("disk for data", Space::predict(config).map_or_else(|e| format!("cannot be told: {e}"), |space| space.to_string()));
    }
    row("output", config.run.output_dir.display().to_string());
    lines
}
