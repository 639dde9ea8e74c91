//! Row `signals`: SIGTERM, SIGUSR1 and SIGINT at random moments. The program must end within ten seconds,
//! with the last finished step saved, and the run must come to the end of an undisturbed one.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::compare;
use crate::compare::Reference;
use crate::draw::{Draw, on_all_cores};
use crate::job::Job;
use crate::place::{Bench, Place};
use crate::sitting::{Ended, SIGINT, SIGKILL, SIGTERM, SIGUSR1, Sitting};
use crate::table::{Control, Outcome};

/// The most that an end may take.
const MOST: Duration = Duration::from_secs(10);

/// A run that is signalled this often is then left to come to its end.
const SIGNALS_OF_A_RUN: usize = 10;

/// Nothing but a signal saves, so that what is there is what the signal left.
const SETS: [&str; 1] = ["training.save_steps=0"];

/// What came of one run.
struct Chain {
    slowest: f64,
    saved: usize,
    faults: Vec<String>,
}

pub(crate) fn run(bench: &Bench, job: Job) -> Result<Outcome> {
    let reference = bench.reference(job)?;
    let runs = bench.count(10, 50) / SIGNALS_OF_A_RUN;
    let chains = on_all_cores(runs, |number| {
        let mut draw = Draw::new(bench.seed, "signals", number);
        chain(bench, job, &reference, &mut draw, &[SIGTERM, SIGUSR1, SIGINT])
    })?;
    let slowest = chains.iter().map(|chain| chain.slowest).fold(0.0, f64::max);
    let saved: usize = chains.iter().map(|chain| chain.saved).sum();
    let mut misses: Vec<String> = chains.into_iter().flat_map(|chain| chain.faults).collect();
    let count = runs * SIGNALS_OF_A_RUN;
    if 3 * saved < count {
        misses.push(format!("only {saved} of {count} signals came while a run was training"));
    }
    let mut control = Control::default();
    let mut draw = Draw::new(bench.seed, "signals control", 0);
    control.expect("SIGKILL instead", chain(bench, job, &reference, &mut draw, &[SIGKILL])?.faults.first());
    let figure = format!("{count} signals, {saved} in training: slowest end {slowest:.2} s");
    Ok(control.outcome(figure, misses))
}

fn chain(bench: &Bench, job: Job, reference: &Reference, draw: &mut Draw, signals: &[i32]) -> Result<Chain> {
    let mut found = Chain { slowest: 0.0, saved: 0, faults: Vec::new() };
    let (mut place, mut sent, mut sittings) = (bench.place()?, 0, 0);
    while sent < SIGNALS_OF_A_RUN {
        sittings += 1;
        if sittings > 30 * SIGNALS_OF_A_RUN {
            bail!("runs end before they get a signal");
        }
        let before = place.last_step();
        let mut sitting = Sitting::start(bench.command(job, &place, &SETS), &place)?;
        if !sitting.wait(draw.duration(Duration::from_secs_f64(reference.seconds)))? {
            found.faults.extend(sitting.finish()?.fault(&[0]));
            found.faults.extend(reference.difference(&place));
            place = bench.place()?;
            continue;
        }
        let signal = signals[draw.below(signals.len())];
        sitting.send(signal)?;
        let sent_at = sitting.elapsed().as_secs_f64();
        let ended = sitting.finish_within(MOST)?;
        if ended.code == Some(0) {
            // It had come to its end already.
            continue;
        }
        sent += 1;
        found.slowest = found.slowest.max(ended.seconds - sent_at);
        found.saved += usize::from(ended.code == Some(128 + signal) && place.last_step() > before);
        found.faults.extend(fault(&ended, signal, before, &place)?);
    }
    found.faults.extend(bench.finish(job, &place, &SETS)?.fault(&[0]));
    found.faults.extend(reference.difference(&place));
    Ok(found)
}

/// What is wrong with the end after a signal.
fn fault(ended: &Ended, signal: i32, before: u64, place: &Place) -> Result<Option<String>> {
    let last = place.last_step();
    // Before the program listens, the system ends it; then nothing may have been done.
    let is_early = ended.signal == Some(signal) && last <= before;
    if !is_early && let Some(fault) = ended.fault(&[128 + signal]) {
        return Ok(Some(format!("after signal {signal}: {fault}")));
    }
    let saved = compare::newest(&place.run())?.0.unwrap_or(0);
    Ok((saved != last)
        .then(|| format!("step {last} is done and step {saved} is saved after signal {signal}")))
}
