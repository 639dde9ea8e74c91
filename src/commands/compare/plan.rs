//! `compare --dry-run`: predicts the runs of a comparison, their steps, time and cost.
//!
//! The plan reads models, tokenizers and all files, so that it reports the same errors as a comparison. It
//! does not train.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::commands::{forecast, terminal};
use crate::config::NamedTask;
use crate::machine::Machine;
use crate::quantity::format_count;
use crate::tasks::finetuning_task::{Examples, FinetuningTask};
use crate::tasks::list;
use crate::tasks::list::FinetunedVisitor;
use crate::tasks::run::Kind;
use crate::train::auto_batch_size;
use crate::trials::comparison::{Entrant, cells, checked_entrants, refuse_used};
use crate::trials::record;

/// Prints the lines of `compare --dry-run`; the results would be in `output`.
pub(super) fn print(
    tasks: &[NamedTask],
    models: &[PathBuf],
    with_baselines: bool,
    output: &Path,
    machine: &Machine,
) -> Result<()> {
    refuse_used(tasks, output)?;
    let entrants = checked_entrants(tasks, models, with_baselines)?;
    let num_runs: usize = tasks.iter().map(|task| task.seeds.len() * entrants.len()).sum();
    let num_twins = entrants.len() - models.len();
    let mut lines = vec![format!(
        "dry run: nothing is written; tasks: {}, models: {}, random twins: {num_twins}, runs: {num_runs}",
        tasks.len(),
        models.len()
    )];
    lines.push(row("compute", &machine.summary()));
    lines.extend(machine.policy.notes.iter().map(|note| row("", note)));
    if let Some(reason) = &machine.without_gpu {
        lines.push(row("", &format!("no GPU: {reason}")));
    }
    let mut runs = Vec::new();
    let mut num_complete = 0;
    for task in tasks {
        let plan = PlanTask { task, entrants: &entrants, machine, lines: &mut lines };
        runs.extend(list::finetuned(task.config.goal(), plan)?);
        for cell in entrants.iter().flat_map(|entrant| cells(output, task, entrant)) {
            let Some(outlook) = cell.outlook()? else { continue };
            if record::exists(&cell.folder) {
                num_complete += 1;
            } else {
                lines.push(row("", &format!("{}: {outlook}", cell.name)));
            }
        }
    }
    if let Some(task) = tasks.first() {
        let found = forecast::time_and_cost(&runs, &task.config, machine)?;
        lines.extend(found.iter().map(|(name, text)| row(name, text)));
    }
    lines.push(row("output", &format!("{}: {num_complete} of {num_runs} runs complete", output.display())));
    // Names of models and tasks come from outside and are escaped.
    lines.iter().map(|line| terminal::printable(line)).try_for_each(|line| terminal::stdout_line(&line))
}

fn row(name: &str, text: &str) -> String {
    format!("  {name:20} {text}")
}

/// Adds the lines of a task and returns its runs.
struct PlanTask<'a> {
    task: &'a NamedTask,
    entrants: &'a [Entrant],
    machine: &'a Machine,
    lines: &'a mut Vec<String>,
}

impl FinetunedVisitor for PlanTask<'_> {
    type Output = Result<Vec<forecast::Runs>>;

    fn visit<T: FinetuningTask>(self) -> Self::Output {
        let Self { task, entrants, machine, lines } = self;
        let examples = Examples::<T>::read(&task.config)?;
        let summary = format!("`{}`: {}", task.name, examples.summary());
        lines.extend(
            summary.lines().enumerate().map(|(at, text)| row(if at == 0 { "task" } else { "" }, text)),
        );
        lines.extend(examples.warning().map(|text| row("warning", text)));
        let mut runs = Vec::new();
        for Entrant { name, path, folder, .. } in entrants.iter().filter(|entrant| !entrant.is_twin()) {
            folder.check_encoder(T::HEAD)?;
            let shapes = examples.kind(&task.config, folder).shapes()?;
            let fit = auto_batch_size::fit(&task.config.training, &shapes, machine)?;
            let training = fit.map_or_else(|| task.config.training.clone(), |fit| fit.training);
            let planned = examples.planned(&task.config, folder)?;
            let update = training.rows_per_update().max(1);
            let parameters = format_count(shapes.outline.num_parameters());
            let count = entrants.iter().filter(|entrant| entrant.path == *path).count() * task.seeds.len();
            let work = forecast::Runs::new(training, shapes, &planned, count);
            let steps_text = format_count(work.steps);
            let early = match work.training.early_stopping_patience {
                Some(_) => " at most",
                None => "",
            };
            lines.push(row(
                "",
                &format!("{name}, {parameters} parameters: {steps_text} steps of {update} rows a run{early}"),
            ));
            runs.push(work);
        }
        Ok(runs)
    }
}
