//! Runs `run.notify_command`, which tells the user how a command ended. A failure of it changes no results
//! and no exit code.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{io, thread};

use anyhow::Result;

use crate::commands::terminal;
use crate::config::RunSection;
use crate::error::{Class, class_of, told};

/// Time limit of the command: one that hangs would keep a rented machine running.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Number of lines of the report in the message; the first lines have the results.
const MESSAGE_LINES: usize = 2;

/// Runs the notify command of `run`, if there is one, after a command that ended with these lines or this
/// error.
pub(super) fn notify(run: &RunSection, end: &Result<Vec<String>>) {
    let Some(command) = &run.notify_command else { return };
    let (event, message) = match end {
        Ok(lines) => {
            let first = lines.iter().take(MESSAGE_LINES).map(|line| line.trim());
            ("complete", first.collect::<Vec<_>>().join("; "))
        }
        Err(e) if matches!(class_of(e), Class::Interrupted(_)) => ("stopped", told(&format!("{e:#}"))),
        Err(e) => ("failed", told(&format!("{e:#}"))),
    };
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(io::stderr());
    shell.env("MLMTRAIN_EVENT", event).env("MLMTRAIN_RUN", &run.output_dir).env("MLMTRAIN_MESSAGE", message);
    let failed = match run_with_timeout(&mut shell, TIMEOUT) {
        Ok(Some(status)) if status.success() => return,
        Ok(Some(status)) => status.to_string(),
        Ok(None) => format!("it was ended after {} s", TIMEOUT.as_secs()),
        Err(e) => e.to_string(),
    };
    terminal::note(&format!("warning: `run.notify_command` failed: {failed}"));
}

/// Runs a command to its end. Returns `None` if it was killed after `timeout`, with all processes that it had
/// started.
fn run_with_timeout(command: &mut Command, timeout: Duration) -> io::Result<Option<ExitStatus>> {
    let mut child = command.process_group(0).spawn()?;
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if began.elapsed() > timeout {
            // SAFETY: `kill` takes plain numbers. The group is that of the child, which was not waited for
            // yet, so its number belongs to no other process.
            let _ = unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_hangs_is_killed() {
        assert_eq!(shell("exit 3", 60_000).unwrap().code(), Some(3));
        assert_eq!(shell("exec sleep 600", 50), None);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("late");
        let line = format!("(sleep 1; touch '{}') & sleep 600", path.display());
        assert_eq!(shell(&line, 300), None);
        thread::sleep(Duration::from_millis(1500));
        assert!(!path.exists(), "what it started has ended with it");
    }

    fn shell(line: &str, timeout_millis: u64) -> Option<ExitStatus> {
        let timeout = Duration::from_millis(timeout_millis);
        run_with_timeout(Command::new("sh").args(["-c", line]), timeout).unwrap()
    }
}
