//! The child that reads mutants: it says which one it begins with, and what came of it.

use std::any::Any;
use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use mlmtrain::rng::Purpose;
use mlmtrain::rng::Stream;

use super::extra;
use super::inputs;
use super::inputs::Input;
use super::mutate;

/// The first argument of a child.
pub(crate) const WORKER: &str = "read-mutants";

/// Reads the mutants that the arguments name.
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
    let [folder, tuned, seed, first, last, plant] = arguments else { bail!("six arguments are wanted") };
    let (folder, tuned) = (PathBuf::from(folder), Path::new(tuned));
    let (seed, first, last): (u64, usize, usize) = (seed.parse()?, first.parse()?, last.parse()?);
    let inputs = if plant == "nothing" { all(&folder, tuned)? } else { vec![planted(plant)] };
    for case in first..=last {
        let input = &inputs[case % inputs.len()];
        let stream = Stream::new(seed, Purpose::Test, case as u64);
        let mutated = match &input.inside {
            Some((plain, compress)) if (case / inputs.len()).is_multiple_of(2) => {
                compress(&mutate::mutate(plain, stream))
            }
            _ => mutate::mutate(&input.bytes, stream),
        };
        say(&format!("begin {case}, {}", input.name));
        input.write(&mutated);
        match catch_unwind(AssertUnwindSafe(|| (input.read)(&input.path))) {
            Ok(Ok(_)) => say("read"),
            Ok(Err(e)) => {
                let message = format!("{e:#}").replace('\n', " / ");
                let is_named = names_file_and_place(&message, &folder);
                say(&format!("{} {message}", if is_named { "refused" } else { "unnamed" }));
            }
            Err(panic) => say(&format!("panicked {}", message_of(panic.as_ref()))),
        }
        input.write(&input.bytes);
    }
    say("done");
    std::fs::remove_dir_all(&folder).or_else(|e| if plant == "nothing" { Err(e) } else { Ok(()) })?;
    Ok(())
}

/// All inputs; undamaged ones must be read.
fn all(folder: &Path, tuned: &Path) -> Result<Vec<Input>> {
    std::fs::create_dir_all(folder)?;
    let mut inputs = inputs::all(folder);
    inputs.extend(extra::all(folder, tuned)?);
    for input in &inputs {
        input.write(&input.bytes);
        let documents = (input.read)(&input.path).with_context(|| format!("the undamaged {}", input.name))?;
        if documents != input.documents {
            bail!("the undamaged {} gives {documents}, not {}", input.name, input.documents);
        }
    }
    Ok(inputs)
}

/// Whether an error names the folder of the damaged file, and in it a number (a line, a byte, a size), or a
/// name in backticks (a key, a tensor), or a hash.
fn names_file_and_place(message: &str, folder: &Path) -> bool {
    let folder = folder.display().to_string();
    let Some(at) = message.find(&folder) else { return false };
    let rest = message[at + folder.len()..].split_once([':', '`']).map_or("", |(_, rest)| rest);
    let others = message[..at].to_string() + rest;
    others.contains(|c: char| c.is_ascii_digit() || c == '`') || others.contains("SHA-256")
}

/// An input that shows whether the driver sees what it is to see.
fn planted(plant: &str) -> Input {
    Input::planted(match plant {
        "panic" => |_| panic!("planted"),
        "hang" => |_| loop {
            std::thread::sleep(std::time::Duration::from_millis(10));
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

/// A reader of an input.
pub(super) type Read = Arc<dyn Fn(&Path) -> inputs::Outcome + Send + Sync>;
