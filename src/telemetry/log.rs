//! A file with the notes, warnings and errors of a command, `--log-file`: the lines that the terminal shows,
//! each with its time, without bars and colours. Results are not among them.
//!
//! Like the terminal, it never stops a run.

use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use anyhow::Result;
use chrono::DateTime;

use crate::fs;
use crate::fs::File;
use crate::secrets;

static FILE: Mutex<Option<File>> = Mutex::new(None);
static VERBOSE: AtomicBool = AtomicBool::new(false);

/// Lines go to the end of this file from here on; it is made where it is missing.
pub fn open(path: &Path) -> Result<()> {
    let file = fs::append(path)?;
    if let Ok(mut log) = FILE.lock() {
        *log = Some(file);
    }
    Ok(())
}

/// Whether there is such a file.
pub fn is_open() -> bool {
    FILE.lock().is_ok_and(|log| log.is_some())
}

/// Whether what is decided on the way is told as well, as `-v` asks.
pub fn set_verbose(verbose: bool) {
    VERBOSE.store(verbose, Ordering::Relaxed);
}

/// Whether `-v` was given.
pub fn is_verbose() -> bool {
    VERBOSE.load(Ordering::Relaxed)
}

/// Adds a text, each of its lines with the time. A file that cannot be written to any more is given up; the
/// warning, which is given once, is for the terminal.
#[must_use]
pub fn add(text: &str) -> Option<String> {
    let mut log = FILE.lock().ok()?;
    let file = log.as_mut()?;
    let time = utc(SystemTime::now());
    let text = secrets::masked(text);
    let lines: Vec<String> = text.lines().map(|line| format!("{time} {}\n", plain(line))).collect();
    let error = file.write_all(lines.concat().as_bytes()).err()?;
    *log = None;
    Some(format!("warning: the log file cannot be written to, and is given up: {error}"))
}

/// A line without what drives a terminal.
fn plain(line: &str) -> String {
    line.chars().filter(|c| !c.is_control() || *c == '\t').collect()
}

/// `2026-11-24T12:00:00Z`.
fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let time = i64::try_from(seconds).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    time.unwrap_or_default().format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_those_of_utc_and_lines_are_plain() {
        assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(1_795_522_496)), "2026-11-24T12:14:56Z");
        assert_eq!(plain("\u{1b}[2Ja\tb\r"), "[2Ja\tb");
    }
}
