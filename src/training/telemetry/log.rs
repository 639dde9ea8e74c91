//! The log file of a command (`--log-file`): the notes, warnings and errors that the terminal shows, each
//! line with its time, without bars and colours. Results are not logged.
//!
//! A failing log file never stops a run.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use chrono::{DateTime, NaiveDateTime};

use base::error::Problem;
use base::fs;
use base::fs::File;
use base::secrets;

static FILE: Mutex<Option<File>> = Mutex::new(None);
/// Length of the time at the start of each line, such as `2026-11-24T12:00:00Z `.
const TIME_BYTES: u64 = 21;

static PLACE: Mutex<Option<PathBuf>> = Mutex::new(None);
static VERBOSE: AtomicBool = AtomicBool::new(false);

/// Opens the log file: all further lines are appended to it. A missing file is created; a file that is not a
/// log, such as a data file, is an error.
pub fn open(path: &Path) -> Result<()> {
    if fs::exists(path) && !fs::is_folder(path) && !is_log(path)? {
        return Err(Problem::usage("exists already, and is no log of this program: nothing is added to it")
            .at(path.display())
            .hint("name another file")
            .into());
    }
    let file = fs::append(path)?;
    if let Ok(mut place) = PLACE.lock() {
        *place = Some(path.to_path_buf());
    }
    if let Ok(mut log) = FILE.lock() {
        *log = Some(file);
    }
    Ok(())
}

/// Returns the path of the log file, if one was opened.
pub fn place() -> Option<PathBuf> {
    PLACE.lock().ok().and_then(|place| place.clone())
}

/// Returns true if a file is empty or its first line starts with a time, as in logs.
fn is_log(path: &Path) -> Result<bool> {
    let mut head = Vec::new();
    fs::open(path)?.take(TIME_BYTES).read_to_end(&mut head)?;
    let head = String::from_utf8_lossy(&head);
    Ok(head.is_empty() || NaiveDateTime::parse_from_str(&head, "%Y-%m-%dT%H:%M:%SZ ").is_ok())
}

/// Returns true if a log file is open.
pub fn is_open() -> bool {
    FILE.lock().is_ok_and(|log| log.is_some())
}

/// Sets whether details, such as decisions on the way, are printed and logged as well (`-v`).
pub fn set_verbose(verbose: bool) {
    VERBOSE.store(verbose, Ordering::Relaxed);
}

/// Returns true if `-v` was given.
pub fn is_verbose() -> bool {
    VERBOSE.load(Ordering::Relaxed)
}

/// Appends a text, each of its lines with the time. If the file cannot be written to, closes it for good and
/// returns a warning for the terminal, once.
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

/// Returns a line without control characters, which would drive a terminal.
fn plain(line: &str) -> String {
    line.chars().filter(|c| !c.is_control() || *c == '\t').collect()
}

/// Formats a time like `2026-11-24T12:00:00Z`.
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
    fn lines_are_appended_to_logs_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (name, text, expected) in [
            ("log", "2026-11-24T12:14:56Z training\n", true),
            ("empty", "", true),
            ("gold.conll", "the\tO\n", false),
            ("dated.csv", "2026-11-24T12:14:56Z,1\n", false),
            ("short", "2026", false),
            ("binary", "\u{1}\u{0}", false),
        ] {
            std::fs::write(path(name), text).unwrap();
            assert_eq!(is_log(&path(name)).unwrap(), expected, "{name}");
        }
        assert!(open(&path("gold.conll")).unwrap_err().to_string().contains("is no log of this program"));
    }

    #[test]
    fn times_are_in_utc_and_lines_have_no_control_characters() {
        assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(1_795_522_496)), "2026-11-24T12:14:56Z");
        assert_eq!(plain("\u{1b}[2Ja\tb\r"), "[2Ja\tb");
    }
}
