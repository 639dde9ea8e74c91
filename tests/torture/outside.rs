//! Rows about what happens outside a run: a clock that jumps, an output that nobody takes, data that become
//! shorter while they are read.

use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::draw::Draw;
use crate::job::Job;
use crate::place::{Bench, Place};
use crate::sitting::{Ended, SIGBUS, SIGKILL, SIGTERM, Sitting};
use crate::table::{Control, Outcome};

/// Where Debian and its kin put libfaketime.
const FAKETIME: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
];

/// Days that the clock jumps to, one after the other.
const JUMPS: [&str; 6] = ["+0", "+3650d", "-3650d", "+1h", "@1970-01-02 00:00:00", "-1h"];

/// Row `clock`: it jumps by years in both directions all the while.
pub(crate) fn clock(bench: &Bench, job: Job) -> Result<Outcome> {
    let Some(library) = FAKETIME.iter().find(|path| Path::new(path).exists()) else {
        return Ok(Outcome::NotRun("libfaketime is missing (Debian's `faketime`)".to_string()));
    };
    let (count, mut misses, mut jumps) = (bench.count(2, 20), Vec::new(), 0);
    for number in 0..count {
        let mut draw = Draw::new(bench.seed, "clock", number);
        let (fault, done) = with_jumps(bench, job, library, &mut draw, &[])?;
        misses.extend(fault);
        jumps += done;
    }
    let mut control = Control::default();
    let mut draw = Draw::new(bench.seed, "clock", 0);
    // What must not jump jumps too, and the run believes that its time is over.
    let limited = ["training.max_train_time=30m"];
    let monotonic = with_jumps(bench, job, library, &mut draw, &limited)?.0;
    control.expect("the steady clock jumps, too", monotonic.as_ref());
    let same = count - misses.len();
    Ok(control.outcome(format!("{same} of {count} runs with {jumps} jumps came to the same bytes"), misses))
}

/// A run under a clock that jumps all the while; with a limit of time, even the one that is meant to be
/// steady does, once, by years.
fn with_jumps(
    bench: &Bench,
    job: Job,
    library: &str,
    draw: &mut Draw,
    sets: &[&str],
) -> Result<(Option<String>, usize)> {
    let place = bench.place()?;
    let clock = place.path("clock");
    fs::write(&clock, JUMPS[0])?;
    let mut command = bench.command(job, &place, sets);
    command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", &clock).env("FAKETIME_NO_CACHE", "1");
    if sets.is_empty() {
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    }
    let mut sitting = Sitting::start(command, &place)?;
    let mut jumps = 0;
    let mut jump = |place: &Place| {
        jumps += 1;
        // In one piece: half a time is none.
        fs::write(place.path("clock-next"), JUMPS[jumps % JUMPS.len()])?;
        fs::rename(place.path("clock-next"), &clock)
    };
    if sets.is_empty() {
        while sitting.wait(Duration::from_millis(2 + draw.below(8) as u64))? {
            jump(&place)?;
        }
    } else if sitting.reach(|| place.last_step() > 3)? {
        jump(&place)?;
    }
    let fault = match sitting.finish()?.fault(&[0]) {
        None => bench.reference(job)?.difference(&place),
        fault => fault,
    };
    let few = (fault.is_none() && sets.is_empty() && jumps < 5)
        .then(|| format!("the clock jumped only {jumps} times"));
    Ok((fault.or(few), jumps))
}

/// Row `output`: standard output and error are closed, or full.
pub(crate) fn output(bench: &Bench, job: Job) -> Result<Outcome> {
    let (mut count, mut misses) = (0, Vec::new());
    for out in [Stream::Closed, Stream::Full, Stream::BrokenPipe] {
        for err in [Stream::Kept, Stream::Closed, Stream::Full, Stream::BrokenPipe] {
            count += 1;
            let fault = printing_to(bench, job, out, err, false)?;
            misses.extend(fault.map(|fault| format!("output {out:?}, error {err:?}: {fault}")));
        }
    }
    let mut control = Control::default();
    let killed = printing_to(bench, job, Stream::Full, Stream::Kept, true)?;
    control.expect("killed over it", killed.as_ref());
    let same = count - misses.len();
    Ok(control.outcome(format!("{same} of {count} pairs of streams: complete, same bytes"), misses))
}

/// Where a stream of a process leads.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stream {
    Kept,
    Closed,
    Full,
    BrokenPipe,
}

impl Stream {
    fn to(self, kept: &Path) -> Result<Stdio> {
        Ok(match self {
            Self::Kept | Self::Closed => File::create(kept)?.into(),
            Self::Full => File::options().write(true).open("/dev/full")?.into(),
            Self::BrokenPipe => std::io::pipe()?.1.into(),
        })
    }
}

fn printing_to(bench: &Bench, job: Job, out: Stream, err: Stream, is_killed: bool) -> Result<Option<String>> {
    let place = bench.place()?;
    let inner = bench.command(job, &place, &[]);
    let closing = |stream, text: &'static str| if stream == Stream::Closed { text } else { "" };
    let script = format!("exec \"$@\" {} {}", closing(out, ">&-"), closing(err, "2>&-"));
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]).arg(inner.get_program()).args(inner.get_args());
    command.current_dir(place.path(""));
    let files: [PathBuf; 2] = [place.path("out"), place.path("err")];
    command.stdout(out.to(&files[0])?).stderr(err.to(&files[1])?);
    let [_, err_file] = files;
    let mut sitting = Sitting::start_with(command, err_file)?;
    if is_killed && sitting.reach(|| place.last_step() > 5)? {
        sitting.send(SIGKILL)?;
    }
    // 74 says that the report could not be written; the run is complete all the same.
    match sitting.finish()?.fault(&[0, 74]) {
        None => Ok(bench.reference(job)?.difference(&place)),
        fault => Ok(fault),
    }
}

/// Row `shortened`: what is read becomes shorter under the run. It may fail with an error, and not by a
/// signal or a panic.
pub(crate) fn shortened(bench: &Bench, job: Job) -> Result<Outcome> {
    let count = bench.count(4, 40);
    let (mut misses, mut errors) = (Vec::new(), 0);
    for number in 0..count {
        let mut draw = Draw::new(bench.seed, "shortened", number);
        let ended = shorten(bench, job, &mut draw, None)?;
        errors += usize::from(ended.code == Some(1));
        misses.extend(fault_of(&ended));
    }
    let mut control = Control::default();
    let hit = shorten(bench, job, &mut Draw::new(bench.seed, "shortened", 0), Some(SIGBUS))?;
    control.expect("SIGBUS sent", fault_of(&hit).as_ref());
    Ok(control.outcome(format!("{count} runs: {errors} ended with an error, {} bad", misses.len()), misses))
}

fn fault_of(ended: &Ended) -> Option<String> {
    let fault = ended.fault(&[0, 1, 128 + SIGTERM]);
    // An error is to say which file.
    let is_unnamed =
        ended.code == Some(1) && !["data/", ".csv"].iter().any(|name| ended.stderr.contains(name));
    fault.or_else(|| is_unnamed.then(|| format!("it names no file: {}", ended.stderr)))
}

fn shorten(bench: &Bench, job: Job, draw: &mut Draw, signal: Option<i32>) -> Result<Ended> {
    let place = bench.place()?;
    let sets = ["training.max_steps=1000000", "training.save_steps=0", "training.eval_steps=20"];
    let mut sitting = Sitting::start(bench.command(job, &place, &sets), &place)?;
    let first = draw.below(20) as u64;
    let runs = sitting.reach(|| place.last_step() > first)?;
    if runs {
        // The first one is caught: the runtime looks whether a stack has overflowed.
        for signal in [signal; 2].into_iter().flatten() {
            sitting.send(signal)?;
            sitting.wait(Duration::from_millis(20))?;
        }
        for file in inputs(&place, job)? {
            let length = fs::metadata(&file)?.len();
            File::options().write(true).open(&file)?.set_len(draw.below(length as usize) as u64)?;
        }
        // Long enough for several passes over data as small as these.
        let after = place.last_step();
        if sitting.reach(|| place.last_step() > after + 100)? {
            sitting.send(SIGTERM)?;
        }
    }
    sitting.finish()
}

/// What a run reads.
fn inputs(place: &Place, job: Job) -> Result<Vec<PathBuf>> {
    if job == Job::Finetune {
        return Ok(["train.csv", "dev.csv", "base/model.safetensors"].map(|name| place.path(name)).to_vec());
    }
    let files = mlmtrain::fs::files_below(&place.path("data")).context("the prepared data")?;
    Ok(files.into_iter().filter(|file| file.extension().is_some_and(|e| e == "safetensors")).collect())
}
