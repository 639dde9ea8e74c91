//! `run.notify_command`: tells somebody how a command ended. It changes nothing of that end.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;

use crate::commands::terminal;
use crate::config::RunSection;
use crate::error::Class;
use crate::error::class_of;
use crate::error::told;

/// What hangs would keep a rented machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// A report begins with what came of a run.
const MESSAGE_LINES: usize = 2;

/// Runs the command of `run`, if there is one, for a command that ended with these lines or this error.
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
    let failed = match patiently(&mut shell, PATIENCE) {
        Ok(Some(status)) if status.success() => return,
        Ok(Some(status)) => status.to_string(),
        Ok(None) => format!("it was ended after {} s", PATIENCE.as_secs()),
        Err(e) => e.to_string(),
    };
    terminal::note(&format!("warning: `run.notify_command` failed: {failed}"));
}

/// Runs a command to its end; `None` where it was killed after `patience`, with all that it had started.
fn patiently(command: &mut Command, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let (mut child, began) = (command.process_group(0).spawn()?, Instant::now());
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if began.elapsed() > patience {
            // SAFETY: `kill` takes plain numbers. The group is that of the child, which is not waited for yet, so its
            // number is of no other process.
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
    fn what_hangs_is_ended() {
        let shell = |line: &str, patience| {
            patiently(Command::new("sh").args(["-c", line]), Duration::from_millis(patience)).unwrap()
        };
        assert_eq!(shell("exit 3", 60_000).unwrap().code(), Some(3));
        assert_eq!(shell("exec sleep 600", 50), None);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("late");
        let line = format!("(sleep 1; touch '{}') & sleep 600", path.display());
        assert_eq!(shell(&line, 300), None);
        thread::sleep(Duration::from_millis(1500));
        assert!(!path.exists(), "what it started has ended with it");
    }
}
