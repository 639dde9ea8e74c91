//! Rows `grid-sweep` and `grid-compare`: a grid of fine-tuning runs is killed at random moments, ten times each,
//! and started again until it is complete. Its tables must have the bytes of one that was never disturbed.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::json;

use crate::compare::read_json;
use crate::draw::Draw;
use crate::job::Job;
use crate::place::{Bench, Place};
use crate::sitting::Sitting;
use crate::table::{Control, Outcome};

/// Kills of one grid.
const KILLS: usize = 10;

const TASKS: &str = "\
seeds: [1, 2]
data: {max_seq_length: 32}
training: {learning_rate: 5.0e-3, max_steps: 50, per_device_train_batch_size: 8, warmup_steps: 0.1, save_steps: 2}
tasks:
  - name: labels
    data: {train_file: train.csv, eval_file: dev.csv}
";

/// A grid: its command line behind that of the job, and the tables that it leaves in `run`.
struct Grid {
    arguments: &'static [&'static str],
    tables: &'static [&'static str],
}

const SWEEP: Grid = Grid {
    arguments: &["--sweep", "learning_rate=1e-3,5e-3", "--sweep", "seed=1,2,3"],
    tables: &["sweep.json", "sweep.md"],
};

const COMPARE: Grid = Grid {
    arguments: &["compare", "--models", "base", "--tasks", "tasks.yaml", "--output-dir", "run"],
    tables: &["compare.json", "compare.md", "compare.html"],
};

pub(crate) fn sweep(bench: &Bench, job: Job) -> Result<Outcome> {
    killed(bench, job, &SWEEP)
}

pub(crate) fn compare(bench: &Bench, job: Job) -> Result<Outcome> {
    killed(bench, job, &COMPARE)
}

impl Grid {
    fn command(&self, bench: &Bench, job: Job, place: &Place) -> Result<Command> {
        if self.arguments[0] != "compare" {
            let mut command = bench.command(job, place, &[]);
            command.args(self.arguments);
            return Ok(command);
        }
        fs::write(place.path("tasks.yaml"), TASKS)?;
        Ok(bench.bare(self.arguments, place))
    }

    fn tables(&self, place: &Place) -> Result<Vec<Vec<u8>>> {
        self.tables.iter().map(|name| Ok(fs::read(place.run_path(name))?)).collect()
    }

    /// What is wrong with the tables, if they are not those wanted.
    fn fault(&self, place: &Place, wanted: &[Vec<u8>]) -> Result<Option<String>> {
        let found = self.tables(place)?;
        let differing = self.tables.iter().zip(found.iter().zip(wanted)).find(|(_, (a, b))| a != b);
        Ok(differing.map(|(name, _)| format!("`{name}` has other bytes")))
    }
}

fn killed(bench: &Bench, job: Job, grid: &Grid) -> Result<Outcome> {
    let whole = bench.place()?;
    let seconds = Sitting::start(grid.command(bench, job, &whole)?, &whole)?.finish()?.ok()?.seconds;
    let wanted = grid.tables(&whole)?;
    let mut misses = Vec::new();
    for number in 0..bench.count(1, 3) {
        let place = bench.place()?;
        let mut draw = Draw::new(bench.seed, "grid", number);
        let (mut kills, mut sittings) = (0, 0);
        // Each sitting does a share of the grid, so that the last kill still finds something to do.
        let share = Duration::from_secs_f64(2.0 * seconds / KILLS as f64);
        while kills < KILLS {
            sittings += 1;
            if sittings > 20 * KILLS {
                bail!("grids end before they can be killed");
            }
            let mut sitting = Sitting::start(grid.command(bench, job, &place)?, &place)?;
            if sitting.wait(draw.duration(share))? {
                kills += usize::from(sitting.kill()?.signal.is_some());
                continue;
            }
            // It was complete: look at it, and begin another.
            misses.extend(sitting.finish()?.fault(&[0]));
            misses.extend(grid.fault(&place, &wanted)?);
            fs::remove_dir_all(place.run())?;
        }
        misses.extend(Sitting::start(grid.command(bench, job, &place)?, &place)?.finish()?.fault(&[0]));
        misses.extend(grid.fault(&place, &wanted)?);
    }
    let mut control = Control::default();
    forge_a_cell(&whole)?;
    Sitting::start(grid.command(bench, job, &whole)?, &whole)?.finish()?.ok()?;
    control.expect("a score that was never reached", grid.fault(&whole, &wanted)?.as_ref());
    let figure = format!("{} kills: {} lost or different", KILLS * bench.count(1, 3), misses.len());
    Ok(control.outcome(figure, misses))
}

/// Writes another score into the record of a cell, as if a killed one had been taken for done.
fn forge_a_cell(place: &Place) -> Result<()> {
    let mut folders = vec![place.run()];
    while let Some(folder) = folders.pop() {
        let record = folder.join("cell.json");
        if record.exists() {
            let mut value = read_json(&record)?;
            // A sweep reads scores, a comparison the predictions.
            value["scores"]["eval_accuracy"] = json!(0.123);
            // The other of the two labels: accuracy changes by one example, even if the model always gives one label.
            if let Some(label) = value.pointer_mut("/outcomes/labels/predicted/0") {
                *label = json!(i64::from(*label == json!(0)));
            }
            fs::write(&record, value.to_string())?;
            return Ok(());
        }
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    bail!("no cell has left a record")
}
