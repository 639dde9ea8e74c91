//! The torture table: every promise of reliability that the program makes, put to the test by breaking things
//! around a release build of it, and beside each one a control, in which the promise is broken on purpose and
//! this driver has to notice.
//!
//! `scripts/torture.sh` runs it; plain `cargo test` does not. It trains models of a few thousand parameters
//! and never asserts on speed. What it measures and how a row is read is in `scripts/testing.md`.

#![expect(clippy::unwrap_used, reason = "material that cannot be made ends the table")]

mod bombs;
mod compare;
mod damage;
mod disk_full;
mod diverging;
mod draw;
mod fuzz;
mod grid;
mod job;
mod kill;
mod lock;
#[path = "../it/material.rs"]
mod material;
mod mounts;
mod mutants;
mod options;
mod outside;
mod place;
mod planted;
mod power;
#[path = "../readers/mod.rs"]
mod readers;
mod reading;
mod resume;
mod secrets;
mod signals;
mod sitting;
mod symlinks;
mod syscalls;
mod table;

use std::io;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};

use job::Job;
use options::Options;
use place::Bench;
use table::{Outcome, Results, Row};

/// The allocator of the program, so that the readers run here on what they run on there.
#[global_allocator]
static ALLOCATOR: ops::memory::LargeBlocks = ops::memory::LargeBlocks;

/// All rows, in the order of the table in the documentation.
fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for job in [Job::Pretrain, Job::Finetune] {
        let mut add = |name: &str, target, run| rows.push(Row::of(name, job, target, run));
        add("kill", "0 lost, all bytes as undisturbed", kill::run);
        add("kill-ahead", "at most one save lost, all bytes as undisturbed", kill::while_training);
        add("syscalls", "0 torn, 0 silent, 0 panics", syscalls::run);
        add("disk-full", "goes on, the next save works", disk_full::run);
        add("power", "0 lost", power::run);
        add("damage", "100 % found, an older one used", damage::run);
        add("signals", "<= 10 s, the last step saved", signals::run);
        add("diverging", "exit 76, checkpoints whole, replayed", diverging::run);
        add("lock", "one runs, one exits 2 within 5 s", lock::run);
        add("clock", "the same bytes", outside::clock);
        add("output", "completes with the same bytes", outside::output);
        add("shortened", "no SIGBUS, no panic", outside::shortened);
        add("symlinks", "0 writes outside", symlinks::run);
        add("secrets", "0 hits", secrets::run);
    }
    rows.push(Row::of("kill", Job::Causal, "0 lost, all bytes as undisturbed", kill::run));
    rows.push(Row::of("planted-nan", Job::Finetune, "skipped and counted; else exit 76", planted::run));
    let tables = "0 lost, the same tables";
    rows.push(Row::of("grid-sweep", Job::Finetune, tables, grid::sweep));
    rows.push(Row::of("grid-compare", Job::Finetune, tables, grid::compare));
    for job in Job::ALL {
        rows.push(Row::of("resume", job, "every step, all bytes as undisturbed", resume::run));
    }
    let any = Job::Pretrain;
    rows.push(Row { name: "mutants".to_string(), job: any, target: mutants::TARGET, run: mutants::run });
    rows.push(Row { name: "fuzz".to_string(), job: any, target: fuzz::TARGET, run: fuzz::run });
    rows.push(Row { name: "bombs".to_string(), job: any, target: bombs::TARGET, run: bombs::run });
    rows
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == reading::WORKER) {
        return reading::work(&arguments[1..]);
    }
    match Options::parse(&arguments).and_then(|options| drive(&options)) {
        Ok(code) => code,
        Err(e) => {
            let _ = writeln!(io::stderr(), "error: {e:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs the rows that are asked for and not yet done, and prints the table of all of them.
fn drive(options: &Options) -> Result<ExitCode> {
    let rows = options.chosen(rows())?;
    let mut results = Results::open(options)?;
    let (mut stdout, program) = (io::stdout(), options.program.display());
    writeln!(stdout, "seed {}, {} counts, {program}\n{}", options.seed, options.size(), table::HEADER)?;
    let bench = Bench::new(options)?;
    for row in &rows {
        let finished = if let Some(finished) = results.find(&row.name) {
            finished
        } else {
            writeln!(io::stderr(), "... {}", row.name)?;
            let started = Instant::now();
            let outcome = (row.run)(&bench, row.job).unwrap_or_else(|e| Outcome::broken(&e));
            results.add(row, outcome, started.elapsed()).context("the results cannot be kept")?
        };
        writeln!(stdout, "{}", finished.line())?;
    }
    let missed = results.summary(&rows);
    writeln!(stdout, "{}", missed.text)?;
    Ok(missed.code)
}
