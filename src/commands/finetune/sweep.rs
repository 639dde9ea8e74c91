//! `mlmtrain finetune --sweep` and `--fractions`: trains many settings and prints one table.

use std::collections::BTreeSet;

use anyhow::Result;

use crate::commands::finetune::choose_length;
use crate::commands::notify::notify;
use crate::commands::{next_step, staging, terminal, together, upload};
use crate::config::{Sweep, to_yaml};
use crate::tasks::list;
use crate::telemetry::Progress;
use crate::train::run_folder::FINAL;
use crate::train::signals::Signals;
use crate::trials::sweep::SweepRun;
use crate::trials::{Equipment, cell, sweep};
use crate::{fs, machine};

pub(super) fn run(mut sweep: Sweep) -> Result<()> {
    let notes = complete(&mut sweep)?;
    // Machine, number type, task and output folder are the same in all settings.
    let Some(first) = sweep.settings.first() else { return Ok(()) };
    upload::refuse_for_many_runs(&first.config.run)?;
    let mut shared = first.config.clone();
    let output = shared.run.output_dir.clone();
    cell::keep_type(&mut shared, sweep::all_cells(&sweep, &output).into_iter().map(|cell| cell.folder))?;
    let (machine, world) =
        machine::set_up_to_share_runs(&shared.run, &shared.precision, &shared.distributed)?;
    for setting in &mut sweep.settings {
        setting.config.precision.compute = machine.policy.compute_type().into();
    }
    let progress = Progress::detect(terminal::is_quiet());
    progress.run_folder(&output);
    let progress = together::begin(world, || text(&sweep), &shared.run, progress)?;
    machine.announce(&progress);
    for note in &notes {
        progress.note(note);
    }
    let signals = Signals::listen(&progress)?;
    let with = Equipment { machine: &machine, progress: &progress, signals: &signals, world };
    let swept = list::finetuned(shared.goal(), SweepRun { sweep: &sweep, output: &output, with });
    let lines = swept.map(|swept| swept.table.lines().into_iter().chain(swept.notes).collect::<Vec<_>>());
    if !world.is_first() {
        return lines.map(drop);
    }
    notify(&shared.run, &lines);
    // Values of settings come from outside and are escaped.
    lines?.iter().map(|line| terminal::printable(line)).try_for_each(|line| terminal::stdout_line(&line))?;
    let best = output.join(sweep::BEST).join(FINAL);
    if fs::exists(&best) {
        next_step::after_finetuning(&best, &shared).lines().for_each(|line| progress.note(line));
    }
    Ok(())
}

/// Downloads what the settings name, and chooses their sequence lengths. Returns the notes about these.
pub(super) fn complete(sweep: &mut Sweep) -> Result<BTreeSet<String>> {
    for setting in &mut sweep.settings {
        setting.config = staging::finetuning(setting.config.clone())?;
    }
    cell::require_files(sweep.settings.iter().map(|setting| &setting.config))?;
    let mut notes = BTreeSet::new();
    for setting in &mut sweep.settings {
        notes.extend(choose_length(&mut setting.config)?);
    }
    Ok(notes)
}

/// A sweep as text. Several processes compare it, to make sure that they were started with the same one.
fn text(sweep: &Sweep) -> String {
    let settings = sweep.settings.iter().map(|setting| to_yaml(&setting.config));
    settings.chain([format!("{:?}", sweep.seeds)]).collect()
}
