//! Row `syscalls`: at every system call of a save, the disk is full, or fails, or the process is killed.
//! Whatever happens, every checkpoint that is there is whole, the program says what failed and goes on, and
//! the run comes to the end of an undisturbed one.
//!
//! `strace` sees only calls on the files of that save, and counts those of a kind in each thread; one thread
//! saves.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mlmtrain::checkpoint::Checkpoint;

use crate::compare;
use crate::draw::{Draw, on_all_cores};
use crate::job::Job;
use crate::place::{Bench, Place};
use crate::readers::copy_tree;
use crate::sitting::{Ended, SIGKILL, Sitting, has_program};
use crate::table::{Control, Outcome};

const CALLS: &str = "openat,write,fsync,rename,mkdir,unlinkat,unlink,rmdir,read";

/// The run goes on after this step.
const FROM: u64 = 20;

/// The save that is broken; it replaces the only checkpoint that there is.
const SAVED: u64 = 22;

const SETS: [&str; 2] = ["training.save_steps=22", "training.save_total_limit=1"];

/// The call number `number` of its kind, counted from 1.
#[derive(Clone, Debug)]
struct Call {
    kind: String,
    number: usize,
}

/// What came of one broken call.
struct Trial {
    was_hit: bool,
    fault: Option<String>,
}

/// What a control does before the driver judges.
type Sabotage = fn(&Place, &mut Ended) -> Result<()>;

pub(crate) fn run(bench: &Bench, job: Job) -> Result<Outcome> {
    if !has_program("strace") {
        return Ok(Outcome::NotRun("strace is missing".to_string()));
    }
    let source = bench.place()?;
    bench.finish(job, &source, &["training.save_steps=20", "training.save_total_limit=100"])?.ok()?;
    let calls = calls_of_a_save(bench, job, &source)?;
    let mut trials: Vec<(Call, &str)> = Vec::new();
    for fault in ["error=ENOSPC", "error=EIO", "signal=SIGKILL"] {
        // A disk that is full can be read.
        let wanted = calls.iter().filter(|call| fault != "error=ENOSPC" || call.kind != "read");
        trials.extend(wanted.map(|call| (call.clone(), fault)));
    }
    let (all, mut draw) = (trials.len(), Draw::new(bench.seed, "syscalls", 0));
    while trials.len() > bench.count(24, all) {
        trials.swap_remove(draw.below(trials.len()));
    }
    let done = on_all_cores(trials.len(), |number| {
        let (call, fault) = &trials[number];
        trial(bench, job, &source, call, fault, |_, _| Ok(()))
    })?;
    let hits = done.iter().filter(|trial| trial.was_hit).count();
    let mut misses: Vec<String> = done.into_iter().filter_map(|trial| trial.fault).collect();
    if 10 * hits < 9 * trials.len() {
        misses.push(format!("only {hits} of {} faults hit the save", trials.len()));
    }
    let write = calls.iter().find(|call| call.kind == "write").context("a save writes")?;
    let mut control = Control::default();
    let sabotages: [(&str, &str, Sabotage); 2] =
        [("torn", "signal=SIGKILL", tear), ("silent", "error=ENOSPC", silence)];
    for (name, fault, sabotage) in sabotages {
        control.expect(name, trial(bench, job, &source, write, fault, sabotage)?.fault.as_ref());
    }
    let figure = format!("{hits} faults of {all} at {} calls: {} bad", calls.len(), misses.len());
    Ok(control.outcome(figure, misses))
}

/// A folder with one checkpoint, and the records of the whole run.
fn place_of(bench: &Bench, source: &Place) -> Result<Place> {
    let place = bench.place()?;
    let name = format!("checkpoint-{FROM}");
    copy_tree(&source.run_path(&name), &place.run_path(&name))?;
    fs::copy(source.run_path("metrics.jsonl"), place.run_path("metrics.jsonl"))?;
    Ok(place)
}

/// The calls of the thread that saves, from the moment that a save begins to the one where the old one is
/// gone.
fn calls_of_a_save(bench: &Bench, job: Job, source: &Place) -> Result<Vec<Call>> {
    let place = place_of(bench, source)?;
    let command = traced(bench, job, &place, &[]);
    Sitting::start(command, &place)?.finish()?.ok()?;
    let log = log_of(&place)?;
    let begins = format!("mkdir(\"run/.tmp-checkpoint-{SAVED}\"");
    let begin = log.lines().find(|line| line.contains(&begins)).context("a save begins")?;
    let thread = begin.split_whitespace().next().context("a line of strace")?;
    let (mut counts, mut calls, mut last) = (BTreeMap::<String, usize>::new(), Vec::new(), 0);
    let next_save = format!(".tmp-checkpoint-{}", 2 * SAVED);
    for line in log.lines() {
        let Some((_, rest)) = line.split_once(' ').filter(|(id, _)| *id == thread) else { continue };
        let Some((kind, arguments)) = rest.trim_start().split_once('(') else { continue };
        if !CALLS.split(',').any(|call| call == kind) {
            continue;
        }
        let count = counts.entry(kind.to_string()).or_default();
        *count += 1;
        if arguments.contains(&next_save) {
            break;
        }
        if !calls.is_empty() || arguments.contains(&format!(".tmp-checkpoint-{SAVED}")) {
            calls.push(Call { kind: kind.to_string(), number: *count });
        }
        if [FROM, SAVED].iter().any(|step| arguments.contains(&format!("checkpoint-{step}"))) {
            last = calls.len();
        }
    }
    calls.truncate(last);
    if calls.len() < 40 {
        bail!("a save has more than {} calls", calls.len());
    }
    Ok(calls)
}

/// Breaks one call, and judges what comes of it.
fn trial(
    bench: &Bench,
    job: Job,
    source: &Place,
    call: &Call,
    fault: &str,
    sabotage: impl Fn(&Place, &mut Ended) -> Result<()>,
) -> Result<Trial> {
    let place = place_of(bench, source)?;
    let inject = format!("--inject={}:{fault}:when={}", call.kind, call.number);
    let command = traced(bench, job, &place, &[&inject]);
    let mut ended = Sitting::start(command, &place)?.finish()?;
    let log = log_of(&place)?;
    let is_kill = fault.starts_with("signal");
    let was_hit = if is_kill {
        ended.signal == Some(SIGKILL)
    } else {
        log.lines().any(|line| line.ends_with("(INJECTED)"))
    };
    sabotage(&place, &mut ended)?;
    let found = judge(bench, job, &place, &ended, is_kill, was_hit)?;
    let at = |found| format!("{fault} at {} {}: {found}", call.kind, call.number);
    Ok(Trial { was_hit, fault: found.map(at) })
}

fn judge(
    bench: &Bench,
    job: Job,
    place: &Place,
    ended: &Ended,
    is_kill: bool,
    was_hit: bool,
) -> Result<Option<String>> {
    for step in place.checkpoints() {
        if let Err(e) = Checkpoint::open(&place.run_path(&format!("checkpoint-{step}"))) {
            // A folder that is being deleted may be cut off, where a newer one is whole.
            let newest = compare::newest(&place.run())?.0;
            if !is_kill || newest.is_none_or(|newest| newest <= step) {
                return Ok(Some(format!("torn: {e:#}")));
            }
        }
    }
    if compare::newest(&place.run())?.0.is_none_or(|newest| newest < FROM) {
        return Ok(Some("no checkpoint is left".to_string()));
    }
    if is_kill && was_hit {
        if let Some(fault) = bench.finish(job, place, &SETS)?.fault(&[0]) {
            return Ok(Some(fault));
        }
    } else {
        if let Some(fault) = ended.fault(&[0]) {
            return Ok(Some(fault));
        }
        if was_hit && !ended.stderr.contains("warning:") {
            return Ok(Some(format!("silent: {}", ended.stderr)));
        }
    }
    Ok(bench.reference(job)?.difference(place))
}

/// The newest checkpoint is cut off, as it would be where its name came before its content.
fn tear(place: &Place, _: &mut Ended) -> Result<()> {
    let newest = place.checkpoints().last().copied().context("there is one")?;
    let model = place.run_path(&format!("checkpoint-{newest}/model.safetensors"));
    Ok(fs::File::options().write(true).open(model)?.set_len(100)?)
}

/// The program says nothing.
#[expect(clippy::unnecessary_wraps, reason = "as the other sabotage has it")]
fn silence(_: &Place, ended: &mut Ended) -> Result<()> {
    ended.stderr.clear();
    Ok(())
}

/// The program under strace, which writes what it sees into `log`.
fn traced(bench: &Bench, job: Job, place: &Place, more: &[&str]) -> Command {
    let trace = format!("--trace={CALLS}");
    let mut under = vec!["strace", "-D", "-f", "-q", "-y", "-o", "log", &trace];
    if !more.iter().any(|option| option.contains("signal=")) {
        // Quicker, but strace 6.1 then forgets to send signals.
        under.push("--seccomp-bpf");
    }
    let paths = paths_of_a_save(place);
    under.extend(paths.iter().flat_map(|path| ["-P", path]));
    under.extend(more);
    bench.command_under(&under, job, place, &SETS)
}

/// The run folder, and what a save writes, renames and removes in it, as the program names them and as the
/// system does.
fn paths_of_a_save(place: &Place) -> Vec<String> {
    let old = place.run_path(&format!("checkpoint-{FROM}"));
    let files = mlmtrain::fs::files_below(&old).unwrap_or_default();
    let mut names: Vec<String> =
        files.iter().filter_map(|file| Some(file.strip_prefix(&old).ok()?.to_str()?.into())).collect();
    names.extend([String::new(), "trainer".to_string()]);
    let mut paths = vec!["run".to_string()];
    for folder in
        [format!(".tmp-checkpoint-{SAVED}"), format!("checkpoint-{SAVED}"), format!("checkpoint-{FROM}")]
    {
        paths.extend(
            names.iter().map(|name| format!("run/{folder}/{name}").trim_end_matches('/').to_string()),
        );
    }
    let whole = paths.iter().map(|path| place.path(path).display().to_string()).collect();
    [paths, whole].concat()
}

/// What strace saw. It ends a little after the program.
fn log_of(place: &Place) -> Result<String> {
    let (path, until) = (place.path("log"), Instant::now() + Duration::from_secs(2));
    loop {
        let log = read(&path);
        let is_whole = log.lines().next_back().is_some_and(|line| line.contains("+++ "));
        if is_whole || Instant::now() > until {
            return Ok(log);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
