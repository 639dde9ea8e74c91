//! Row `lock`: two processes begin in one folder at once. One runs; the other exits 2 within a second.

use std::time::Duration;

use anyhow::Result;

use crate::draw::Draw;
use crate::job::Job;
use crate::place::Bench;
use crate::sitting::{SIGTERM, Sitting, has_program};
use crate::table::{Control, Outcome};

/// The most seconds that a refusal may take, on a machine with other work, too.
const MOST: f64 = 5.0;

/// A run that is not over while the other one is refused.
const ENDLESS: [&str; 2] = ["training.max_steps=1000000", "training.save_steps=0"];

/// As if the system gave the lock to everyone.
const NO_LOCK: [&str; 7] = ["strace", "-D", "-f", "-q", "-o", "/dev/null", "--inject=flock:retval=0"];

pub(crate) fn run(bench: &Bench, job: Job) -> Result<Outcome> {
    if !has_program("strace") {
        return Ok(Outcome::NotRun("strace is missing, which the control needs".to_string()));
    }
    let count = bench.count(10, 100);
    let (mut slowest, mut misses) = (0.0, Vec::new());
    for number in 0..count {
        let mut draw = Draw::new(bench.seed, "lock", number);
        match two(bench, job, None, draw.duration(Duration::from_millis(30)))? {
            Ok(seconds) => slowest = f64::max(slowest, seconds),
            Err(fault) => misses.push(fault),
        }
    }
    let mut control = Control::default();
    let open = two(bench, job, Some(&NO_LOCK), Duration::ZERO)?;
    control.expect("no lock", open.err().as_ref());
    let figure = format!("{} of {count} pairs, slowest refusal {slowest:.2} s", count - misses.len());
    Ok(control.outcome(figure, misses))
}

/// Starts two, the second one a little later, and says how long its refusal took, or what went wrong.
fn two(bench: &Bench, job: Job, under: Option<&[&str]>, later: Duration) -> Result<Result<f64, String>> {
    let place = bench.place()?;
    let command = || match under {
        Some(under) => bench.command_under(under, job, &place, &ENDLESS),
        None => bench.command(job, &place, &ENDLESS),
    };
    let mut first = Sitting::start_as(command(), &place, "-first")?;
    std::thread::sleep(later);
    let mut second = Sitting::start_as(command(), &place, "-second")?;
    // Whichever comes first; under strace a start takes its time.
    let limit = Duration::from_secs(if under.is_some() { 5 } else { 2 });
    let mut over = (false, false);
    while over == (false, false) && second.elapsed() < limit {
        over = (first.is_over()?, second.is_over()?);
        std::thread::sleep(Duration::from_micros(200));
    }
    let (loser, mut winner) = if over.0 { (first, second) } else { (second, first) };
    let loser = if over == (false, false) { end(loser)? } else { loser.finish()? };
    let still_runs = !winner.is_over()?;
    let trains = still_runs && winner.reach(|| place.last_step() > 0)?;
    let winner = end(winner)?;
    if over == (false, false) {
        return Ok(Err(format!("both run after {limit:?}")));
    }
    if over == (true, true) || !trains {
        return Ok(Err(format!("none runs: {} / {}", loser.stderr, winner.stderr)));
    }
    if let Some(fault) = loser.fault(&[2]).or_else(|| winner.fault(&[128 + SIGTERM])) {
        return Ok(Err(fault));
    }
    if !loser.stderr.contains("is in use by another run") {
        return Ok(Err(format!("it does not say why: {}", loser.stderr)));
    }
    Ok(if loser.seconds <= MOST { Ok(loser.seconds) } else { Err(format!("took {} s", loser.seconds)) })
}

fn end(sitting: Sitting) -> Result<crate::sitting::Ended> {
    sitting.send(SIGTERM)?;
    sitting.finish_within(Duration::from_secs(10))
}
