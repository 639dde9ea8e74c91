//! Notes of tests that were skipped: a file for each run of `cargo test`, into which all of its test programs
//! write, and from which the last one, `skipped`, tells what was not tested.
//!
//! It knows nothing of the data that a test wants.

use std::fs::OpenOptions;
use std::io::{Error, Write};
use std::os::unix::process::parent_id;
use std::panic::Location;
use std::path::PathBuf;
use std::{fs, thread};

/// Says that the test of this thread is skipped and why, now and at the end of `cargo test`.
#[track_caller]
pub(super) fn skipped(reason: &str) {
    // A closed stderr, or a folder that is write-protected, is no reason for a test to fail.
    let _ = writeln!(std::io::stderr(), "skipped: {reason}");
    let caller = Location::caller();
    // The runner names threads after tests, but has only one with `--test-threads=1`.
    let test = match thread::current().name() {
        Some(name) if name != "main" => name.to_string(),
        _ => format!("a test in {}:{}", caller.file(), caller.line()),
    };
    let _ = note(&format!("{test}: {reason}\n"));
}

/// The lines of one `write` each do not get into each other, whichever thread or process they are of.
fn note(line: &str) -> Result<(), Error> {
    let path = file_of_this_run()?;
    fs::create_dir_all(path.parent().unwrap_or(&path))?;
    OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())
}

/// The file of the run that this test program belongs to, in the folder of what was built.
///
/// A run is known by the process that started its programs, which is cargo. Numbers of processes come again;
/// when a process began tells two with the same number apart, where the system says it.
pub(super) fn file_of_this_run() -> Result<PathBuf, Error> {
    // target/debug/deps/it-0123456789abcdef
    let program = std::env::current_exe()?;
    let built = program.ancestors().nth(2).ok_or_else(|| Error::other("a program without a folder"))?;
    let parent = parent_id();
    let status = fs::read_to_string(format!("/proc/{parent}/stat")).unwrap_or_default();
    // The name of the program stands in brackets and may hold spaces; the start is the twentieth field after.
    let began = status.rsplit(')').next().and_then(|fields| fields.split_whitespace().nth(19));
    Ok(built.join("skipped-tests").join(format!("{parent}-{}", began.unwrap_or("0"))))
}
