//! Row `mutants`: ten thousand damaged shards, checkpoints, models, tokenizers, configurations, corpora,
//! labelled files and records. Each is read or refused by name and place; none makes a reader panic, hang, or
//! take more than 2 GiB.

use anyhow::Result;

use crate::draw::on_all_cores;
use crate::job::Job;
use crate::place::Bench;
use crate::reading;
use crate::reading::{Found, Order};
use crate::table::Outcome;

pub(crate) const TARGET: &str = "0 panics, 0 hangs, 0 over 2 GiB, >= 99 % of refusals name file and place";

/// Mutants that one child reads.
const CHUNK: usize = 1000;

pub(crate) fn run(bench: &Bench, _: Job) -> Result<Outcome> {
    let runs = bench.damaged_runs()?;
    let count = bench.count(1000, 10_000);
    let chunk = CHUNK.min(count / 2);
    let children = on_all_cores(count.div_ceil(chunk), |number| {
        reading::read(bench, &runs, Order::Cases(number * chunk..count.min((number + 1) * chunk)))
    })?;
    let all = children.into_iter().fold(Found::default(), Found::and);
    let mut misses = all.misses();
    let (wanted, seen) = (count as u64, all.read + all.refused + all.broken.len() as u64);
    if seen != wanted || all.refused < wanted / 5 || all.read < wanted / 20 {
        misses.push(format!("{} were read and {} refused of {count}", all.read, all.refused));
    }
    let percent = all.named_percent();
    if percent < 99.0 {
        misses.extend(all.unnamed.iter().take(reading::SHOWN).cloned());
    }
    let control = reading::control(bench, &runs, &["panic", "hang", "memory", "message"])?;
    let figure = format!(
        "{count} mutants: {} read, {} refused, {} broken; {percent:.2} % name file and place",
        all.read,
        all.refused,
        all.broken.len()
    );
    Ok(control.outcome(figure, misses))
}
