//! One process of the program under the driver's eyes: started, awaited, signalled, killed.
//!
//! What it prints goes into files beside the run: a pipe that nobody reads would hold it up.

use std::fs;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::place::{HANG, Place};

pub(crate) const SIGINT: i32 = 2;
pub(crate) const SIGBUS: i32 = 7;
pub(crate) const SIGKILL: i32 = 9;
pub(crate) const SIGUSR1: i32 = 10;
pub(crate) const SIGTERM: i32 = 15;

/// How often a running process is looked at.
const LOOK: Duration = Duration::from_micros(200);

/// A process that runs.
pub(crate) struct Sitting {
    child: Child,
    started: Instant,
    err: PathBuf,
}

/// A process that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) hung: bool,
    pub(crate) seconds: f64,
    pub(crate) stderr: String,
}

impl Sitting {
    /// Starts `command`, its output into `out` and `err` of the place.
    pub(crate) fn start(command: Command, place: &Place) -> Result<Self> {
        Self::start_as(command, place, "")
    }

    /// The same beside another process in this place, with `suffix` at the names of its files.
    pub(crate) fn start_as(mut command: Command, place: &Place, suffix: &str) -> Result<Self> {
        let (out, err) = (place.path(&format!("out{suffix}")), place.path(&format!("err{suffix}")));
        command.stdout(File::create(&out)?).stderr(File::create(&err)?);
        Self::start_with(command, err)
    }

    /// Starts `command` with standard output and error as it has them; what of the latter lies in `err` is
    /// read at the end.
    pub(crate) fn start_with(mut command: Command, err: PathBuf) -> Result<Self> {
        command.stdin(Stdio::null());
        let started = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child, started, err })
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_over(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits until `happens`, and says whether it did before the end of the process.
    pub(crate) fn reach(&mut self, mut happens: impl FnMut() -> bool) -> Result<bool> {
        let started = Instant::now();
        while !happens() {
            if self.is_over()? {
                return Ok(false);
            }
            if started.elapsed() > HANG {
                bail!("nothing happens any more: {}", fs::read_to_string(&self.err).unwrap_or_default());
            }
            std::thread::sleep(LOOK);
        }
        Ok(true)
    }

    /// Waits for `time`, and says whether the process still runs.
    pub(crate) fn wait(&mut self, time: Duration) -> Result<bool> {
        let until = Instant::now() + time;
        self.reach(|| Instant::now() >= until)
    }

    /// Waits until what it has said on standard error is as wanted.
    pub(crate) fn reach_looking_at(&mut self, wanted: impl Fn(&str) -> bool) -> Result<bool> {
        let path = self.err.clone();
        let said = || String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned();
        self.reach(|| wanted(&said()))
    }

    pub(crate) fn send(&self, signal: i32) -> Result<()> {
        let (signal, process) = (format!("-{signal}"), self.child.id().to_string());
        // It may have ended on its own meanwhile: then `kill` fails, and nothing is wrong.
        Command::new("kill").args([signal, process]).stderr(Stdio::null()).status()?;
        Ok(())
    }

    /// Ends it at once, as a power supply does.
    pub(crate) fn kill(mut self) -> Result<Ended> {
        // It may have ended on its own meanwhile.
        let _ = self.child.kill();
        self.finish()
    }

    /// Waits for its end, and ends it where it hangs.
    pub(crate) fn finish(self) -> Result<Ended> {
        self.finish_within(HANG)
    }

    pub(crate) fn finish_within(mut self, limit: Duration) -> Result<Ended> {
        let until = Instant::now() + limit;
        let mut hung = false;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() >= until {
                hung = true;
                self.child.kill()?;
                break self.child.wait()?;
            }
            std::thread::sleep(LOOK);
        };
        Ok(self.ended(status, hung))
    }

    fn ended(&self, status: ExitStatus, hung: bool) -> Ended {
        Ended {
            code: status.code(),
            signal: status.signal(),
            hung,
            seconds: self.started.elapsed().as_secs_f64(),
            stderr: String::from_utf8_lossy(&fs::read(&self.err).unwrap_or_default()).into_owned(),
        }
    }
}

impl Ended {
    /// It ended well.
    pub(crate) fn ok(self) -> Result<Self> {
        match self.fault(&[0]) {
            Some(fault) => bail!("{fault}"),
            None => Ok(self),
        }
    }

    /// What is wrong with an end that should have had one of these codes.
    pub(crate) fn fault(&self, codes: &[i32]) -> Option<String> {
        let is_panic = self.stderr.contains("panicked");
        let is_wanted = self.code.is_some_and(|code| codes.contains(&code));
        if !self.hung && !is_panic && is_wanted {
            return None;
        }
        let what = match (self.hung, is_panic) {
            (true, _) => "hung",
            (_, true) => "panicked",
            _ => "ended wrongly",
        };
        let tail: Vec<&str> = self.stderr.lines().rev().take(6).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        Some(format!("{what} (code {:?}, signal {:?}): {}", self.code, self.signal, tail.join(" / ")))
    }
}

/// Whether a program of this name can be started.
pub(crate) fn has_program(name: &str) -> bool {
    let version = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}
