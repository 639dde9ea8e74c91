//! `finetune --dry-run`: predicts examples, sizes, steps, memory and disk of a run.
//!
//! The plan reads the configuration, the examples, the tokenizer and the model folder, so that it reports the
//! same errors as a run. It does not train.

use anyhow::Result;

use crate::commands::finetune::{choose_length, seeds};
use crate::commands::{forecast, terminal};
use crate::config::{FinetuneConfig, Sweep};
use crate::error::Problem;
use crate::interop::read_folder;
use crate::machine;
use crate::machine::Machine;
use crate::quantity::format_count;
use crate::tasks::list;
use crate::tasks::list::FinetunedVisitor;
use crate::tasks::run::{Kind, total_steps};
use crate::tasks::target::{Examples, Target};
use crate::train::batch_size;

/// Prints the lines of `finetune --dry-run`.
pub(super) fn single(config: &FinetuneConfig, machine: &Machine) -> Result<()> {
    print_plan(vec!["dry run: nothing is written".to_string()], config, machine)
}

/// Prints how many runs a sweep has, and the lines of its first setting.
pub(super) fn sweep(sweep: &Sweep) -> Result<()> {
    let Some(first) = sweep.settings.first() else { return Ok(()) };
    let mut config = first.config.clone();
    choose_length(&mut config)?;
    let machine = machine::set_up(&config.run, &config.precision)?;
    config.precision.compute = machine.policy.compute_type().into();
    let settings = sweep.settings.len();
    let seeds = sweep.seeds.len();
    let values: Vec<String> =
        sweep.keys.iter().zip(&first.values).map(|(key, value)| format!("{key}={value}")).collect();
    let runs = format!("{settings} settings x {seeds} seeds = {} runs", settings * seeds);
    let lines = vec![format!("dry run: nothing is written; {runs}; the first, {}:", values.join(", "))];
    print_plan(lines, &config, &machine)
}

/// Prints `lines`, then the lines of the plan.
fn print_plan(mut lines: Vec<String>, config: &FinetuneConfig, machine: &Machine) -> Result<()> {
    lines.extend(list::finetuned(config.goal(), PlanLines { config, machine })?);
    // Labels come from outside and are escaped.
    lines.iter().map(|line| terminal::printable(line)).try_for_each(|line| terminal::stdout_line(&line))
}

/// Computes the lines of a plan.
struct PlanLines<'a> {
    config: &'a FinetuneConfig,
    machine: &'a Machine,
}

impl FinetunedVisitor for PlanLines<'_> {
    type Output = Result<Vec<String>>;

    fn visit<T: Target>(self) -> Result<Vec<String>> {
        let Self { config, machine } = self;
        let mut lines = Vec::new();
        let mut row = |name: &str, text: String| lines.push(format!("  {name:20} {text}"));
        row("compute", machine.summary());
        machine.policy.notes.iter().for_each(|note| row("", note.clone()));
        if let Some(reason) = &machine.without_gpu {
            row("", format!("no GPU: {reason}"));
        }
        let folder = read_folder(&config.model)?;
        folder.check_encoder(T::HEAD)?;
        folder.notes.iter().for_each(|note| row("", format!("{}: {note}", config.model.display())));
        let examples = Examples::<T>::read(config)?;
        if examples.num_train() == 0 {
            return Err(Problem::usage("leaves no example to train on").at("data.train_file").into());
        }
        let shapes = examples.kind(config, &folder).shapes()?;
        let fit = batch_size::fit(&config.training, &shapes, machine)?;
        let shape = &shapes.model.encoder;
        let parameters = shapes.outline.num_parameters();
        let sizes = format!("{} x {}", shape.num_hidden_layers, shape.hidden_size);
        let model = format!("{} {sizes}: {} parameters", shapes.model.family.name, format_count(parameters));
        row("model", format!("{model}, `{}`", folder.path.display()));
        examples.summary().lines().for_each(|line| row("examples", line.to_string()));
        let planned = examples.planned(config, &folder)?;
        planned.lines.into_iter().for_each(|(name, text)| row(name, text));
        if let Some(fit) = &fit {
            row("batch", fit.to_string());
        }
        let training = fit.as_ref().map_or(&config.training, |fit| &fit.training);
        let update = training.rows_per_update();
        row("update", format!("{update} rows of at most {} tokens", config.data.sequence_length()));
        let steps = total_steps(training, planned.rows.next_multiple_of(update.max(1)) as u64);
        let epochs = steps as f64 / planned.rows.div_ceil(update.max(1)).max(1) as f64;
        row("steps", format!("{}, {epochs:.1} epochs", format_count(steps)));
        row("memory", forecast::memory(training, config.data.sequence_length(), machine, &shapes));
        row("disk", forecast::disk(shapes.checkpoint_bytes(training), training, &config.run));
        if let Some(limit) = &training.max_train_time {
            row("time limit", format!("{limit}; if time runs out first, the learning rate has not decayed"));
        }
        if let Some(text) = forecast::limits(&config.run) {
            row("limit", format!("{text}; there are fewer steps if it does not suffice for all"));
        }
        for run in seeds(config) {
            row("output", format!("{}, seed {}", run.folder.display(), run.seed));
        }
        Ok(lines)
    }
}
