//! Row `fuzz`: as many damaged inputs as can be read in a minute, or a million of them, over the same readers
//! as in the row `mutants` and from what was once read wrongly. None makes a reader panic, hang, or take more
//! than 2 GiB.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::draw::on_all_cores;
use crate::job::Job;
use crate::place::Bench;
use crate::reading;
use crate::reading::{Found, Order};
use crate::table::Outcome;

pub(crate) const TARGET: &str = "0 panics, 0 hangs, 0 over 2 GiB";

/// The small count is a time.
const QUICK: Duration = Duration::from_secs(60);

/// The full count.
const EXECUTIONS: u64 = 1_000_000;

/// Far longer than the full count takes.
const AGES: Duration = Duration::from_secs(24 * 3600);

pub(crate) fn run(bench: &Bench, _: Job) -> Result<Outcome> {
    let runs = bench.damaged_runs()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (time, executions) = match bench.count(0, 1) {
        0 => (QUICK, u64::MAX),
        _ => (AGES, EXECUTIONS.div_ceil(cores as u64)),
    };
    let started = Instant::now();
    let children = on_all_cores(cores, |child| {
        reading::read(bench, &runs, Order::Most { child: child as u64, time, executions })
    })?;
    let seconds = started.elapsed().as_secs_f64();
    let all = children.into_iter().fold(Found::default(), Found::and);
    let mut misses = all.misses();
    let count = all.read + all.refused;
    let slowest = all.targets.values().min().copied().unwrap_or(0);
    if count < 1000 || slowest == 0 {
        misses.push(format!("{count} were read or refused: {:?}", all.targets));
    }
    let control = reading::control(bench, &runs, &["panic", "hang", "memory"])?;
    let targets: Vec<String> =
        all.targets.iter().map(|(target, count)| format!("{target} {count}")).collect();
    let figure = format!(
        "{count} executions, {:.0} a second ({}); {} broken; {:.2} % of {} refusals name file and place",
        count as f64 / seconds,
        targets.join(", "),
        all.broken.len(),
        all.named_percent(),
        all.refused
    );
    Ok(control.outcome(figure, misses))
}
