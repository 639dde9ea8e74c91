//! Damaged inputs, read by children of this driver with the readers of the program, thousands each and at
//! most 2 GiB large: a child that dies or hangs is replaced by one that goes on behind what it died of.

mod notes;
mod worker;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::place::Bench;
use crate::table::Control;
use notes::Noted;
pub(crate) use worker::{WORKER, work};

/// A reader that takes longer for one input hangs.
const HANG: Duration = Duration::from_secs(10);

/// The driver looks at a child so often.
const LOOK: Duration = Duration::from_millis(500);

/// Space of addresses of a child.
const LIMIT_KIB: u64 = 2 << 20;

/// Stands for the number of a mutant where a kept case is read.
const KEPT: u64 = u64::MAX;

/// Refusals and findings that are shown, and files that are kept of them.
pub(crate) const SHOWN: usize = 20;

/// What a child is to read.
#[derive(Clone)]
pub(crate) enum Order {
    /// The mutants of these numbers, of one input after the other.
    Cases(Range<usize>),
    /// As many as can be read in a time, at most so many; all inputs take the same time.
    Most { child: u64, time: Duration, executions: u64 },
}

/// What came of some damaged inputs.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) read: u64,
    pub(crate) refused: u64,
    /// Executions by target.
    pub(crate) targets: BTreeMap<String, u64>,
    /// Refusals that lack file or place.
    pub(crate) unnamed: Vec<String>,
    /// Panics, hangs and deaths.
    pub(crate) broken: Vec<String>,
}

impl Found {
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.read += other.read;
        self.refused += other.refused;
        self.unnamed.extend(other.unnamed);
        self.broken.extend(other.broken);
        for (target, count) in other.targets {
            *self.targets.entry(target).or_default() += count;
        }
        self
    }

    /// The first of what is broken, and how many more there are.
    pub(crate) fn misses(&self) -> Vec<String> {
        let more = self.broken.len().saturating_sub(SHOWN);
        let more = (more > 0).then(|| format!("and {more} more"));
        self.broken.iter().take(SHOWN).cloned().chain(more).collect()
    }

    pub(crate) fn named_percent(&self) -> f64 {
        100.0 * (self.refused as f64 - self.unnamed.len() as f64) / self.refused.max(1) as f64
    }

    /// Takes over what a child has noted in `folder`, and gives the input that it was reading.
    fn take(&mut self, folder: &Path, noted: &Noted) -> Option<(String, u64)> {
        let names = fs::read_to_string(folder.join("names")).unwrap_or_default();
        let names: Vec<&str> = names.lines().collect();
        for (name, (read, refused)) in names.iter().zip(noted.counts()) {
            self.read += read;
            self.refused += refused;
            let target = name.split(' ').next().unwrap_or_default().to_string();
            *self.targets.entry(target).or_default() += read + refused;
        }
        let (input, case) = noted.under_way()?;
        let name = names.get(input)?.split_once(' ').map_or("", |(_, name)| name);
        Some((name.to_string(), case))
    }
}

/// Whether the driver notices what is planted in a reader.
pub(crate) fn control(bench: &Bench, runs: &Path, plants: &[&str]) -> Result<Control> {
    let mut control = Control::default();
    for plant in plants {
        let found = read_with(bench, runs, Order::Cases(0..1), plant, HANG / 5)?;
        control.expect(plant, found.broken.first().or(found.unnamed.first()));
    }
    Ok(control)
}

/// Has what is ordered read, by as many children as it takes; `runs` were made before.
pub(crate) fn read(bench: &Bench, runs: &Path, order: Order) -> Result<Found> {
    read_with(bench, runs, order, "nothing", HANG)
}

fn read_with(bench: &Bench, runs: &Path, order: Order, plant: &str, hang: Duration) -> Result<Found> {
    let (mut found, mut order) = (Found::default(), Some(order));
    while let Some(now) = order {
        let folder = bench.fresh_path("reading-");
        let reader = Reader::start(bench, runs, &folder, &now, plant)?;
        order = reader.watch(bench, now, hang, &mut found)?;
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    Ok(found)
}

/// A child and what it says.
struct Reader {
    child: Child,
    lines: Receiver<String>,
    folder: PathBuf,
}

impl Reader {
    fn start(bench: &Bench, runs: &Path, folder: &Path, order: &Order, plant: &str) -> Result<Self> {
        let script = format!("ulimit -v {LIMIT_KIB} && exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).arg(std::env::current_exe()?).arg(WORKER);
        command.arg(folder).arg(runs).args([&bench.seed.to_string(), plant]);
        command.args(match order {
            Order::Cases(cases) => vec![cases.start.to_string(), (cases.end - 1).to_string()],
            Order::Most { child, time, executions } => {
                vec![child.to_string(), time.as_secs().to_string(), executions.to_string()]
            }
        });
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
        Ok(Self { child, lines, folder: folder.to_path_buf() })
    }

    /// Listens until the child is done, and says why it ended before.
    fn listen(&self, bench: &Bench, hang: Duration, found: &mut Found) -> Result<Option<&'static str>> {
        let (mut is_ready, mut noted, mut since) = (false, Noted::default(), Instant::now());
        loop {
            match self.lines.recv_timeout(LOOK) {
                Ok(line) => match line.split_once(' ').unwrap_or((&line, "")) {
                    ("ready", _) => is_ready = true,
                    ("unnamed", message) => found.unnamed.push(message.to_string()),
                    ("panicked", message) => {
                        let (path, message) = message.split_once(' ').unwrap_or(("", message));
                        keep(bench, Path::new(path))?;
                        found.broken.push(format!("panicked: {message}"));
                    }
                    ("done", _) => return Ok(None),
                    _ => bail!("a reader of damaged inputs: {line}"),
                },
                Err(RecvTimeoutError::Timeout) => {
                    let now = Noted::read(&self.folder);
                    if now != noted {
                        (noted, since) = (now, Instant::now());
                    }
                    // Before it is ready it makes all its inputs and reads them undamaged.
                    if since.elapsed() > if is_ready { hang } else { 12 * HANG } {
                        return Ok(Some("hangs"));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(Some("died")),
            }
        }
    }

    /// Takes over what came of it, and gives what is left to be read where the child ended too early.
    fn watch(
        mut self,
        bench: &Bench,
        order: Order,
        hang: Duration,
        found: &mut Found,
    ) -> Result<Option<Order>> {
        let started = Instant::now();
        let why = self.listen(bench, hang, found)?;
        if why.is_some() {
            // It may have ended on its own.
            let _ = self.child.kill();
        }
        let (end, noted) = (self.child.wait()?, Noted::read(&self.folder));
        let under_way = found.take(&self.folder, &noted);
        let Some(why) = why else { return Ok(None) };
        let Some((name, case)) = under_way else {
            bail!("a reader of damaged inputs {why} before the first one: {end}")
        };
        let paths = fs::read_to_string(self.folder.join("paths")).unwrap_or_default();
        let path = noted.under_way().and_then(|(input, _)| paths.lines().nth(input));
        keep(bench, Path::new(path.unwrap_or_default()))?;
        found.broken.push(format!("{case}, {name}: the reader {why} ({end})"));
        Ok(order.behind(case, started.elapsed(), &noted))
    }
}

impl Order {
    /// What is left of it behind a mutant that ended the child.
    fn behind(self, case: u64, elapsed: Duration, noted: &Noted) -> Option<Self> {
        match self {
            Self::Cases(cases) => {
                Some(case as usize + 1..cases.end).filter(|rest| !rest.is_empty()).map(Self::Cases)
            }
            Self::Most { child, time, executions } => {
                let done = noted.counts().map(|(read, refused)| read + refused).sum();
                let (time, executions) = (time.saturating_sub(elapsed), executions.saturating_sub(done));
                // Every child would end at the same kept case.
                let is_left = !time.is_zero() && executions > 0 && case != KEPT;
                // A number of its own, or it would draw the same once more.
                is_left.then_some(Self::Most { child: child + 16, time, executions })
            }
        }
    }
}

/// Copies what was being read to where the results are kept.
fn keep(bench: &Bench, path: &Path) -> Result<()> {
    let Some(output) = bench.output.as_ref().filter(|_| path.is_file()) else { return Ok(()) };
    let broken = output.join("broken");
    fs::create_dir_all(&broken)?;
    let number = fs::read_dir(&broken)?.count();
    if number >= SHOWN {
        return Ok(());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    fs::copy(path, broken.join(format!("{number:03}-{name}")))?;
    Ok(())
}
