//! One launch of a run: starts this program again, watches its steps, and stops it after one of them.
//!
//! A step counts as done when its record is in `metrics.jsonl`. The output of the program goes to a file.

use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::checkpoint::CheckpointStore;
use crate::commands::verify_resume::subject::{SaveSettings, Subject};
use crate::error::{Class, Problem};
use crate::fs;
use crate::train::signals::Signals;

/// Time between two checks of the run.
const PAUSE: Duration = Duration::from_millis(2);

/// Bytes at the end of `metrics.jsonl` that are read: more than the last record has.
const RECORD_BYTES: u64 = 1 << 14;

/// The signal that stops a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopSignal {
    /// SIGTERM, after which the run saves a checkpoint and ends.
    Terminate,
    /// SIGKILL, which ends the process at once.
    Kill,
}

impl StopSignal {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Kill => "SIGKILL",
        }
    }
}

/// A stop of a run: the signal, and the step after which it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) signal: StopSignal,
    /// The signal is sent when this number of steps is done, or soon after.
    pub(super) step: u64,
}

/// The end of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The signal ended the process after this number of steps.
    Stopped(u64),
    /// The checkpoint of the last step was saved, and the process was killed.
    Saved,
    /// The run ended by itself.
    Complete,
}

/// A run, and the step whose checkpoint is needed.
pub(super) struct Run<'a> {
    pub(super) subject: &'a Subject,
    /// `straight` or `interrupted`.
    pub(super) name: &'static str,
    /// The output folder of the run.
    pub(super) folder: PathBuf,
    /// The step whose checkpoint is compared; the run is killed after it.
    pub(super) last_step: u64,
    pub(super) saves: SaveSettings,
    /// Signals to this process itself.
    pub(super) signals: &'a Signals,
}

impl Run<'_> {
    /// Starts or resumes the run, and watches it until `stop` or its last step. `on_step` is called with the
    /// number of steps that are done.
    pub(super) fn launch(&self, stop: Option<Stop>, on_step: &mut dyn FnMut(u64)) -> Result<Ended> {
        let program = std::env::current_exe().context("cannot tell where this program lies")?;
        let metrics = self.folder.join("metrics.jsonl");
        let before = last_step(&metrics);
        let mut has_begun = false;
        let log = fs::append(&self.log())?;
        let errors = log.try_clone().with_context(|| format!("cannot use `{}`", self.log().display()))?;
        let mut command = Command::new(&program);
        command.args(self.subject.arguments_for(&self.folder, self.saves)?);
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
            // Records of an earlier launch do not show that this process has started training; before that it
            // may not handle signals yet.
            has_begun |= last != before;
            let step = last.unwrap_or(0);
            on_step(step);
            if fs::is_folder(&saved) {
                return Ok(Ended::Saved);
            }
            if let Some(stop) = stop.filter(|stop| has_begun && step >= stop.step) {
                child.send(stop.signal)?;
                return self.ended(child.0.wait()?, Some(Stop { step, ..stop }));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// The file for the output of the program.
    fn log(&self) -> PathBuf {
        self.folder.with_extension("log")
    }

    /// Classifies the end of the process. `stop` is the signal that was sent, if any, and the step after
    /// which it was.
    fn ended(&self, status: ExitStatus, stop: Option<Stop>) -> Result<Ended> {
        if status.success() {
            return Ok(Ended::Complete);
        }
        let is_stopped = stop.is_some_and(|stop| match stop.signal {
            StopSignal::Terminate => status.code() == Some(128 + libc::SIGTERM),
            StopSignal::Kill => status.signal() == Some(libc::SIGKILL),
        });
        match stop {
            Some(stop) if is_stopped => Ok(Ended::Stopped(stop.step)),
            _ => Err(self.failure(status)),
        }
    }

    /// Returns the error for a run that failed, with the last output of the program as the reason.
    fn failure(&self, status: ExitStatus) -> anyhow::Error {
        let class = match status.code() {
            Some(2) => Class::Usage,
            Some(74) => Class::Disk,
            Some(76) => Class::Diverged,
            _ => Class::Failed,
        };
        let output = tail(&self.log(), 1 << 13).unwrap_or_default();
        let from = output.find("error: ").map_or(0, |at| at + "error: ".len());
        let output = output[from..].trim();
        let output = if output.is_empty() { "it said nothing" } else { output };
        let reason = self.subject.with_original_paths(output, &self.folder);
        Problem::new(format!("the {} run failed ({status}): {reason}", self.name)).class(class).into()
    }
}

/// A child process that is killed when this value is dropped.
struct Running(Child);

impl Running {
    fn send(&mut self, signal: StopSignal) -> Result<()> {
        let sent = match signal {
            StopSignal::Kill => self.0.kill(),
            StopSignal::Terminate => {
                // SAFETY: the child was not waited for, so that its number is still its own.
                let result = unsafe { libc::kill(self.0.id() as libc::pid_t, libc::SIGTERM) };
                if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            }
        };
        sent.with_context(|| format!("cannot send {} to a run", signal.name()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The step of the last complete record of `metrics.jsonl`.
fn last_step(path: &Path) -> Option<u64> {
    let text = tail(path, RECORD_BYTES)?;
    let (whole, _) = text.rsplit_once('\n')?;
    serde_json::from_str::<Value>(whole.lines().last()?).ok()?["step"].as_u64()
}

/// Reads the last `bytes` bytes of a file, or all of it if it is shorter.
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
