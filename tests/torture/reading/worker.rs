//! The child that reads damaged inputs: before each one it notes which it begins with, and what came of those
//! before, so that nothing of it is lost with the process.

use std::any::Any;
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mlmtrain::rng::{Purpose, Stream, hash_name};

use super::KEPT;
use super::notes::Notes;
use crate::readers;
use crate::readers::{Input, Runs};

/// The first argument of a child.
pub(crate) const WORKER: &str = "read-damaged";

/// Mutants of one input that follow each other where the time is shared out.
const BURST: u64 = 32;

/// Does what the arguments say.
pub(crate) fn work(arguments: &[String]) -> ExitCode {
    match read(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            say(&format!("error {e:#}"));
            ExitCode::FAILURE
        }
    }
}

fn read(arguments: &[String]) -> Result<()> {
    let [folder, runs, seed, plant, order @ ..] = arguments else { bail!("four arguments are wanted") };
    let (folder, runs) = (Path::new(folder), Runs::at(Path::new(runs)));
    fs::create_dir_all(folder)?;
    let inputs = if plant == "nothing" { readers::all(folder, &runs)? } else { vec![planted(plant)] };
    let names = inputs.iter().map(|input| format!("{} {}\n", input.target, input.name));
    fs::write(folder.join("names"), names.collect::<String>())?;
    let paths = inputs.iter().map(|input| format!("{}\n", input.path.display()));
    fs::write(folder.join("paths"), paths.collect::<String>())?;
    let notes = Notes::create(folder, inputs.len())?;
    let mut worker = Worker { folder: folder.to_path_buf(), notes, seed: seed.parse()?, inputs };
    say("ready");
    match order {
        [first, last] => worker.each(first.parse()?, last.parse()?)?,
        [child, seconds, executions] => {
            worker.share(child.parse()?, Duration::from_secs(seconds.parse()?), executions.parse()?)?;
        }
        _ => bail!("two numbers or three are wanted"),
    }
    say("done");
    Ok(())
}

struct Worker {
    folder: PathBuf,
    notes: Notes,
    seed: u64,
    inputs: Vec<Input>,
}

impl Worker {
    /// Reads the mutants from `first` to `last`, of one input after the other.
    fn each(&mut self, first: u64, last: u64) -> Result<()> {
        for case in first..=last {
            let index = case as usize % self.inputs.len();
            self.one(index, case, Stream::new(self.seed, Purpose::Test, case))?;
            self.inputs[index].write(&self.inputs[index].bytes);
        }
        Ok(())
    }

    /// Gives every input as much time as any other, and first of all reads what was kept.
    fn share(&mut self, child: u64, most: Duration, executions: u64) -> Result<()> {
        for (index, kept) in
            self.inputs.iter().map(|input| input.kept.clone()).enumerate().collect::<Vec<_>>()
        {
            for bytes in kept {
                self.notes.begin(index, KEPT)?;
                self.attempt(index, &bytes, "kept");
            }
        }
        let (started, mut done) = (Instant::now(), 0);
        let mut spent = vec![(Duration::ZERO, 0u64); self.inputs.len()];
        while started.elapsed() < most && done < executions {
            let index = (0..spent.len()).min_by_key(|&index| spent[index].0).context("there are inputs")?;
            let (begun, first) = (Instant::now(), spent[index].1);
            let own = hash_name(&self.inputs[index].name) ^ child << 48;
            for case in first..first + BURST {
                self.one(index, case, Stream::new(self.seed, Purpose::Test, own.wrapping_add(case)))?;
            }
            spent[index] = (spent[index].0 + begun.elapsed(), first + BURST);
            done += BURST;
        }
        Ok(())
    }

    fn one(&mut self, index: usize, case: u64, stream: Stream) -> Result<()> {
        let mutant = self.inputs[index].mutant(stream);
        self.notes.begin(index, case)?;
        self.attempt(index, &mutant, &case.to_string());
        Ok(())
    }

    fn attempt(&mut self, index: usize, bytes: &[u8], case: &str) {
        let input = &self.inputs[index];
        match catch_unwind(AssertUnwindSafe(|| input.read(bytes))) {
            Ok(Ok(_)) => self.notes.ended(index, false),
            Ok(Err(e)) => {
                self.notes.ended(index, true);
                // What is refused for many reasons at once names a place for each.
                let message = format!("{e:#}").replace('\n', " / ");
                if !input.names_file_and_place(&message) {
                    say(&format!("unnamed {case}, {}: {message}", input.name));
                }
            }
            Err(panic) => {
                // The next mutant takes its place.
                let kept = self.folder.join(format!("broken-{index}-{case}"));
                let _ = fs::write(&kept, bytes);
                let message = message_of(panic.as_ref());
                say(&format!("panicked {} {case}, {}: {message}", kept.display(), input.name));
            }
        }
    }
}

/// An input that shows whether the driver sees what it is to see.
fn planted(plant: &str) -> Input {
    Input::planted(match plant {
        "panic" => |_| panic!("planted"),
        "hang" => |_| loop {
            std::thread::sleep(Duration::from_millis(10));
        },
        "memory" => |_| Ok(vec![1u8; 3 << 30].iter().map(|byte| u64::from(*byte)).sum()),
        _ => |_| bail!("broken"),
    })
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default().replace('\n', " / ")
}

fn say(line: &str) {
    // Without a reader there is nobody to tell.
    let _ = writeln!(std::io::stdout(), "{line}");
}
