//! The end of `cargo test`: which tests of this run were skipped for want of data.
//!
//! It tests nothing. Cargo runs test programs in the order of their names, and this one's comes last; the
//! runner of each program knows only its own tests, and counts a skipped one as passed.

use std::io::Write;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

#[expect(dead_code, reason = "notes are taken by the other test programs")]
mod notes;

/// No `cargo test` takes longer.
const LONGEST_RUN: Duration = Duration::from_secs(24 * 60 * 60);

fn main() -> io::Result<()> {
    // Asked by tools that run tests one by one; there are none.
    if std::env::args().any(|argument| argument == "--list") {
        return Ok(());
    }
    let file = notes::file_of_this_run().ok();
    let text = file.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    // A test asks for its data as often as it likes.
    let mut skipped: Vec<&str> = text.lines().collect();
    skipped.sort_unstable();
    skipped.dedup();
    let mut stdout = io::stdout().lock();
    match skipped.len() {
        0 => writeln!(stdout, "\nno test was skipped for want of data")?,
        1 => writeln!(stdout, "\n1 test was skipped for want of data:")?,
        count => writeln!(stdout, "\n{count} tests were skipped for want of data:")?,
    }
    for line in &skipped {
        writeln!(stdout, "    {line}")?;
    }
    let result = format!("ok. 0 passed; 0 failed; {} ignored", skipped.len());
    writeln!(stdout, "\ntest result: {result}; 0 measured; 0 filtered out; finished in 0.00s\n")?;
    if let Some(path) = file {
        tidy(&path);
    }
    Ok(())
}

/// Removes the notes of this run, and those of runs that ended before they came here. Another run may be
/// under way.
fn tidy(file: &Path) {
    let _ = fs::remove_file(file);
    let others = file.parent().and_then(|folder| fs::read_dir(folder).ok());
    for other in others.into_iter().flatten().flatten() {
        let age = other.metadata().and_then(|metadata| metadata.modified()).map(|time| time.elapsed());
        if matches!(age, Ok(Ok(age)) if age > LONGEST_RUN) {
            let _ = fs::remove_file(other.path());
        }
    }
}
