//! Two thousand damaged inputs: each gives documents or an error that names its file, never a panic, never a
//! hang.
//!
//! They run in this process, one after the other, on a thread that a watchdog looks after. Bombs, which would
//! take this process with them, run as processes of their own (`bombs`).

mod bombs;
mod watchdog;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use mlmtrain::rng::{Purpose, Stream};
use watchdog::Ended;

use crate::readers;
use crate::readers::{Input, Outcome, Runs};

/// Mutated inputs over all kinds.
const CASES: usize = 2000;

/// The share of errors that must name the file and a place in it, in percent.
const NAMED_PERCENT: usize = 99;

#[test]
fn two_thousand_damaged_inputs_are_read_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::make(&folder.path().join("runs"), &mut |arguments, code| {
        let ended = Command::new(env!("CARGO_BIN_EXE_mlmtrain")).args(arguments).output()?;
        anyhow::ensure!(ended.status.code() == Some(i32::from(code)), "{arguments:?}: {ended:?}");
        Ok(())
    });
    let inputs = readers::all(&folder.path().join("inputs"), &runs.unwrap()).unwrap();
    for (input, bytes) in inputs.iter().flat_map(|input| input.kept.iter().map(move |bytes| (input, bytes))) {
        if let Err(e) = input.read(bytes) {
            assert!(input.names_file_and_place(&format!("{e:#}")), "{}: {e:#}", input.name);
        }
    }
    let found = run(&inputs, CASES);
    assert!(found.read > 0 && found.refused > 0, "{} read, {} refused", found.read, found.refused);
    assert!(found.broken.is_empty(), "{}", found.broken.join("\n"));
    let allowed = found.refused * (100 - NAMED_PERCENT) / 100;
    assert!(
        found.unnamed.len() <= allowed,
        "{} of {} errors name no file or no place:\n{}",
        found.unnamed.len(),
        found.refused,
        found.unnamed.join("\n")
    );
    assert!(
        found.refused > CASES / 10 && found.read > CASES / 20,
        "the mutations are neither harmless nor hopeless: {found:?}"
    );
}

#[test]
fn the_harness_finds_a_panic_a_hang_and_a_message_without_the_file() {
    let planted = |read: fn(&Path) -> Outcome| Input::planted(read);
    let found = run(&[planted(|_| panic!("planted"))], 3);
    assert_eq!((found.broken.len(), found.refused), (3, 0), "{found:?}");
    assert!(found.broken[0].contains("planted"), "{found:?}");
    let found = run(&[planted(|_| anyhow::bail!("broken"))], 3);
    assert_eq!((found.unnamed.len(), found.refused), (3, 3), "{found:?}");
    let hang = watchdog::run(Duration::from_millis(50), || {
        loop {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    assert!(matches!(hang, Ended::<()>::Hung));
}

/// What came out of the cases.
#[derive(Debug, Default)]
struct Found {
    read: usize,
    refused: usize,
    /// Errors that name no file, or no place in it.
    unnamed: Vec<String>,
    /// Panics and hangs.
    broken: Vec<String>,
}

fn run(inputs: &[Input], cases: usize) -> Found {
    let mut found = Found::default();
    for case in 0..cases {
        let input = &inputs[case % inputs.len()];
        // The seed is the case: any one of them can be run again on its own.
        let stream = Stream::new(20, Purpose::Test, case as u64);
        input.write(&input.mutant(stream));
        let (read, path) = (Arc::clone(&input.read), input.path.clone());
        let label = format!("case {case}, {}", input.name);
        match watchdog::run(watchdog::LIMIT, move || read(&path)) {
            Ended::Well(Ok(_)) => found.read += 1,
            Ended::Well(Err(e)) => {
                found.refused += 1;
                let message = format!("{e:#}");
                if !input.names_file_and_place(&message) {
                    found.unnamed.push(format!("{label}: {message}"));
                }
            }
            Ended::Panicked(message) => found.broken.push(format!("{label}: panicked: {message}")),
            Ended::Hung => {
                found.broken.push(format!("{label}: took more than {:?}", watchdog::LIMIT));
                // Its thread still holds the file: what follows would not be what it says.
                break;
            }
        }
        input.write(&input.bytes);
    }
    found
}
