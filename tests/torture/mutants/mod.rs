//! Row `mutants`: ten thousand damaged shards, checkpoints, models, tokenizers, configurations, corpora and
//! labelled files. Each is read or refused by name and place; none makes a reader panic, hang, or take more
//! than 2 GiB.
//!
//! Children of this driver read them with the readers of the program, hundreds each; a child that dies names
//! the mutant that it died of, and the next one goes on behind it.

mod extra;
#[path = "../../it/hostile/inputs.rs"]
mod inputs;
#[path = "../../it/hostile/mutate.rs"]
mod mutate;
mod worker;

use std::io::BufRead;
use std::io::BufReader;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;

pub(crate) use inputs::gzip;
pub(crate) use inputs::zstd;
pub(crate) use worker::WORKER;
pub(crate) use worker::work;

use crate::draw::on_all_cores;
use crate::job::Job;
use crate::place::Bench;
use crate::table::Control;
use crate::table::Outcome;

pub(crate) const TARGET: &str = "0 panics, 0 hangs, 0 over 2 GiB, >= 99 % of refusals name file and place";

/// A reader that is silent for this long hangs.
const HANG: Duration = Duration::from_secs(10);

/// Mutants that one child reads.
const CHUNK: usize = 250;

/// Space of addresses of a child.
const LIMIT_KIB: u64 = 2 << 20;

/// Refusals that are shown where they name too little.
const SHOWN: usize = 20;

/// What came of some mutants.
#[derive(Default)]
struct Found {
    read: usize,
    refused: usize,
    /// Refusals that lack file or place.
    unnamed: Vec<String>,
    /// Panics, hangs and deaths.
    broken: Vec<String>,
}

pub(crate) fn run(bench: &Bench, _: Job) -> Result<Outcome> {
    let tuned = bench.place()?;
    bench.finish(Job::Finetune, &tuned, &[])?.ok()?;
    let count = bench.count(1000, 10_000);
    let found = on_all_cores(count.div_ceil(CHUNK), |chunk| {
        let cases = chunk * CHUNK..count.min((chunk + 1) * CHUNK);
        read(bench, &tuned.run(), cases.collect(), "nothing", HANG)
    })?;
    let mut all = Found::default();
    for found in found {
        all.read += found.read;
        all.refused += found.refused;
        all.unnamed.extend(found.unnamed);
        all.broken.extend(found.broken);
    }
    let mut misses = all.broken.clone();
    if all.read + all.refused + all.broken.len() != count || all.refused < count / 5 || all.read < count / 20
    {
        misses.push(format!("{} were read and {} refused of {count}", all.read, all.refused));
    }
    if 100 * all.unnamed.len() > all.refused {
        misses.extend(all.unnamed.iter().take(SHOWN).cloned());
    }
    let mut control = Control::default();
    for plant in ["panic", "hang", "memory", "message"] {
        let found = read(bench, &tuned.run(), vec![0], plant, HANG / 5)?;
        control.expect(plant, found.broken.first().or(found.unnamed.first()));
    }
    let named = all.refused - all.unnamed.len();
    let percent = 100.0 * named as f64 / all.refused.max(1) as f64;
    let figure = format!(
        "{count} mutants: {} read, {} refused, {} broken; {percent:.1} % name file and place",
        all.read,
        all.refused,
        all.broken.len()
    );
    Ok(control.outcome(figure, misses))
}

/// A child and what it says.
struct Reader {
    child: Child,
    lines: Receiver<String>,
}

impl Reader {
    fn start(bench: &Bench, tuned: &Path, cases: &[usize], plant: &str) -> Result<Self> {
        let (first, last) = (cases[0], cases[cases.len() - 1]);
        let script = format!("ulimit -v {LIMIT_KIB} && exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).arg(std::env::current_exe()?).arg(WORKER);
        command.arg(bench.fresh_path("mutants-")).arg(tuned);
        command.args([bench.seed.to_string(), first.to_string(), last.to_string(), plant.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let out = child.stdout.take().context("it is piped")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// Ends it, and says how it had ended.
    fn end(mut self) -> Result<String> {
        // It may have ended on its own.
        let _ = self.child.kill();
        Ok(self.child.wait()?.to_string())
    }
}

/// Has these cases read, by as many children as it takes.
fn read(bench: &Bench, tuned: &Path, cases: Vec<usize>, plant: &str, hang: Duration) -> Result<Found> {
    let (mut found, mut rest) = (Found::default(), cases.as_slice());
    while !rest.is_empty() {
        let reader = Reader::start(bench, tuned, rest, plant)?;
        let mut under_way: Option<String> = None;
        let why = loop {
            // The first line comes when the child has made all its inputs and read them undamaged.
            let limit = if under_way.is_some() { hang } else { 12 * HANG };
            match reader.lines.recv_timeout(limit) {
                Ok(line) => match line.split_once(' ').unwrap_or((&line, "")) {
                    ("begin", name) => under_way = Some(name.to_string()),
                    ("read", _) => found.read += 1,
                    ("refused", _) => found.refused += 1,
                    ("unnamed", message) => {
                        found.refused += 1;
                        found.unnamed.push(format!("{}: {message}", under_way.clone().unwrap_or_default()));
                    }
                    ("panicked", message) => {
                        let name = under_way.clone().unwrap_or_default();
                        found.broken.push(format!("{name}: panicked: {message}"));
                    }
                    ("done", _) => break None,
                    _ => bail!("a reader of mutants: {line}"),
                },
                Err(mpsc::RecvTimeoutError::Timeout) => break Some("hangs".to_string()),
                Err(mpsc::RecvTimeoutError::Disconnected) => break Some("died".to_string()),
            }
        };
        let end = reader.end()?;
        let Some(why) = why else { return Ok(found) };
        let Some(name) = under_way else { bail!("a reader of mutants {why} before the first one: {end}") };
        let number: usize = name.split(',').next().unwrap_or("").parse().context("a case has a number")?;
        found.broken.push(format!("{name}: the reader {why} ({end})"));
        rest = &rest[rest.iter().position(|case| *case == number).context("a case of these")? + 1..];
    }
    Ok(found)
}
