//! One sitting of a run: this program started again, watched, and stopped after a step.
//!
//! A step is done when it stands in `metrics.jsonl`. What is said on the way goes to a file.

use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use serde_json::Value;

use crate::checkpoint::CheckpointStore;
use crate::commands::verify_resume::subject::Cadence;
use crate::commands::verify_resume::subject::Subject;
use crate::error::Class;
use crate::error::Problem;
use crate::fs;
use crate::train::signals::Signals;

/// Between two looks at the run; the looks take far less time than a step.
const PAUSE: Duration = Duration::from_millis(2);

/// More than the last record of a run takes.
const RECORD_BYTES: u64 = 1 << 14;

/// What stops a run from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blow {
    /// Asks for a checkpoint and an end.
    Terminate,
    /// Ends the process at once.
    Kill,
}

impl Blow {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Kill => "SIGKILL",
        }
    }
}

/// When a run is stopped, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) blow: Blow,
    /// It comes when so many steps are done, or soon after.
    pub(super) step: u64,
}

/// How a sitting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// By the blow, when so many steps were done.
    Stopped(u64),
    /// The checkpoint that was waited for is there.
    Saved,
    /// The run came to its end.
    Complete,
}

/// A run and what it is watched for.
pub(super) struct Run<'a> {
    pub(super) subject: &'a Subject,
    /// `straight` or `interrupted`.
    pub(super) name: &'static str,
    /// Its output folder.
    pub(super) folder: PathBuf,
    /// The step whose checkpoint ends it.
    pub(super) last_step: u64,
    pub(super) cadence: Cadence,
    /// Ask this process itself to stop.
    pub(super) signals: &'a Signals,
}

impl Run<'_> {
    /// Starts the run, or goes on with it, until `stop` or its last step; `seen` is told how far it is.
    pub(super) fn sit(&self, stop: Option<Stop>, seen: &mut dyn FnMut(u64)) -> Result<Ended> {
        let program = std::env::current_exe().context("cannot tell where this program lies")?;
        let metrics = self.folder.join("metrics.jsonl");
        let before = last_step(&metrics);
        let mut has_begun = false;
        let log = fs::append(&self.log())?;
        let errors = log.try_clone().with_context(|| format!("cannot use `{}`", self.log().display()))?;
        let mut command = Command::new(&program);
        command.args(self.subject.sitting(&self.folder, self.cadence)?);
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = command.spawn().with_context(|| format!("cannot start `{}` again", program.display()))?;
        let mut child = Running(child);
        let saved = CheckpointStore::new(&self.folder).path_of(self.last_step);
        loop {
            if let Some(status) = child.0.try_wait()? {
                return self.ended(status, None);
            }
            if let Some(signal) = self.signals.received() {
                return Err(Problem::new(format!("stopped by signal {signal}; nothing is proved"))
                    .class(Class::Interrupted(signal))
                    .into());
            }
            let last = last_step(&metrics);
            // What an earlier sitting left says nothing of this one, which may not yet listen to signals.
            has_begun |= last != before;
            let step = last.unwrap_or(0);
            seen(step);
            if fs::is_folder(&saved) {
                return Ok(Ended::Saved);
            }
            if let Some(stop) = stop.filter(|stop| has_begun && step >= stop.step) {
                child.strike(stop.blow)?;
                return self.ended(child.0.wait()?, Some((stop.blow, step)));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Where the program writes what it says.
    fn log(&self) -> PathBuf {
        self.folder.with_extension("log")
    }

    fn ended(&self, status: ExitStatus, struck: Option<(Blow, u64)>) -> Result<Ended> {
        let ends_as = |blow: Blow| match blow {
            Blow::Terminate => status.code() == Some(128 + libc::SIGTERM),
            Blow::Kill => status.signal() == Some(libc::SIGKILL),
        };
        match struck {
            _ if status.success() => Ok(Ended::Complete),
            Some((blow, step)) if ends_as(blow) => Ok(Ended::Stopped(step)),
            _ => Err(self.failure(status)),
        }
    }

    /// What the program said last, as the reason of this one's failure.
    fn failure(&self, status: ExitStatus) -> anyhow::Error {
        let class = match status.code() {
            Some(2) => Class::Usage,
            Some(74) => Class::Disk,
            Some(76) => Class::Diverged,
            _ => Class::Failed,
        };
        let said = tail(&self.log(), 1 << 13).unwrap_or_default();
        let from = said.find("error: ").map_or(0, |at| at + "error: ".len());
        let said = said[from..].trim();
        let said = if said.is_empty() { "it said nothing" } else { said };
        let said = self.subject.in_known_terms(said, &self.folder);
        Problem::new(format!("the {} run failed ({status}): {said}", self.name)).class(class).into()
    }
}

/// A child that does not outlive this value.
struct Running(Child);

impl Running {
    fn strike(&mut self, blow: Blow) -> Result<()> {
        let struck = match blow {
            Blow::Kill => self.0.kill(),
            Blow::Terminate => {
                // SAFETY: the child was not waited for, so that its number is still its own.
                let sent = unsafe { libc::kill(self.0.id() as libc::pid_t, libc::SIGTERM) };
                if sent == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            }
        };
        struck.with_context(|| format!("cannot send {} to a run", blow.name()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail where it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The step of the last whole record of `metrics.jsonl`.
fn last_step(path: &Path) -> Option<u64> {
    let text = tail(path, RECORD_BYTES)?;
    let (whole, _) = text.rsplit_once('\n')?;
    serde_json::from_str::<Value>(whole.lines().last()?).ok()?["step"].as_u64()
}

/// The end of a file, of at most `bytes` bytes.
fn tail(path: &Path, bytes: u64) -> Option<String> {
    let file = fs::open(path).ok()?;
    let length = fs::len_bytes(path).ok()?;
    let start = length.saturating_sub(bytes);
    let mut buffer = vec![0; (length - start) as usize];
    let count = file.read_at(&mut buffer, start).ok()?;
    Some(String::from_utf8_lossy(&buffer[..count]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_record_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        assert_eq!(last_step(&path), None);
        std::fs::write(&path, "{\"step\":1,\"train/loss\":2}\n{\"step\":2}\n{\"step\":3").unwrap();
        assert_eq!(last_step(&path), Some(2));
        std::fs::write(&path, "{\"step\":4").unwrap();
        assert_eq!(last_step(&path), None);
        assert_eq!(tail(&path, 3).as_deref(), Some("\":4"));
    }
}
