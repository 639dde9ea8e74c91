//! SIGINT, SIGTERM, SIGUSR1 and SIGHUP ask for a checkpoint and an end; a second one of the first three ends
//! the process at once. A closed terminal may send SIGHUP twice, so a second SIGHUP does not end the process;
//! under `nohup` the program ignores SIGHUP.
//!
//! Nothing is saved here: the training loop calls [`Signals::received`] wherever it waits, and stops if there
//! was a signal.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;

use crate::error::{Class, Problem};
use crate::{distributed, fs};

/// The signals received so far; cheap to clone and to query, from any thread.
#[derive(Debug, Clone, Default)]
pub struct Signals {
    number: Arc<AtomicUsize>,
}

impl Signals {
    /// Starts listening. The second signal exits with 128 + its number without cleaning up.
    pub fn listen() -> Result<Self> {
        let signals = Self::default();
        let armed = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGUSR1, SIGHUP] {
            if signal == SIGHUP && is_ignored(signal) {
                continue;
            }
            signals.register(signal, &armed).with_context(|| format!("cannot listen to signal {signal}"))?;
        }
        distributed::listen()?;
        Ok(signals)
    }

    /// Registers the actions of `signal`. They run in the order of their registration: the exit checks the flag
    /// `armed` before this signal sets it.
    fn register(&self, signal: i32, armed: &Arc<AtomicBool>) -> std::io::Result<()> {
        if signal != SIGHUP {
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(armed))?;
        }
        flag::register_usize(signal, Arc::clone(&self.number), signal as usize)?;
        flag::register(signal, Arc::clone(armed))?;
        Ok(())
    }

    /// Signals that never arrive, for callers without a terminal such as tests.
    pub fn none() -> Self {
        Self::default()
    }

    /// Simulates the arrival of this signal.
    #[cfg(test)]
    pub(in crate::train) fn pretend(&self, number: u8) {
        self.number.store(usize::from(number), Ordering::SeqCst);
    }

    /// The number of the signal received, if any.
    pub fn received(&self) -> Option<u8> {
        match self.number.load(Ordering::SeqCst) {
            0 => None,
            number => Some(number as u8),
        }
    }
}

/// Returns true if the program was started with this signal ignored, as by `nohup`.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_system_text(Path::new("/proc/self/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// The error of a run that a signal stopped; `saved` describes what was saved.
pub fn stopped_by(signal: u8, saved: &str) -> Problem {
    let by = if i32::from(signal) == SIGINT { "Ctrl-C".to_string() } else { format!("signal {signal}") };
    Problem::new(format!("stopped by {by}; {saved}"))
        .class(Class::Interrupted(signal))
        .hint("the same command continues from there")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: &str = "MLMTRAIN_TEST_SIGNAL_CHILD";

    // Signals reach a whole process, so each case runs in a child: this same test binary with a variable set.
    fn exit_code_of_child(mode: &str) -> Option<i32> {
        let program = std::env::current_exe().unwrap();
        // The tests themselves may run under `nohup`, whose processes ignore SIGHUP.
        let launcher: &[&str] = match mode {
            "nohup" => &["nohup"],
            _ => &["env", "--default-signal=HUP"],
        };
        let arguments = ["--exact", "train::signals::tests::child", "--nocapture", "--test-threads=1"];
        let status = std::process::Command::new(launcher[0])
            .args(&launcher[1..])
            .arg(&program)
            .args(arguments)
            .env(CHILD, mode)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap();
        status.code()
    }

    #[test]
    fn child() {
        let Ok(mode) = std::env::var(CHILD) else { return };
        let signals = Signals::listen().unwrap();
        assert_eq!(signals.received(), None);
        if ["hangup", "nohup"].contains(&mode.as_str()) {
            signal_hook::low_level::raise(SIGHUP).unwrap();
            signal_hook::low_level::raise(SIGHUP).unwrap();
            let expected = (mode == "hangup").then_some(SIGHUP as u8);
            assert_eq!(signals.received(), expected);
            return;
        }
        signal_hook::low_level::raise(SIGUSR1).unwrap();
        assert_eq!(signals.received(), Some(SIGUSR1 as u8));
        if mode == "twice" {
            signal_hook::low_level::raise(SIGTERM).unwrap();
        }
    }

    #[test]
    fn the_first_signal_sets_a_flag() {
        assert_eq!(exit_code_of_child("once"), Some(0));
        assert_eq!(Signals::none().received(), None);
    }

    #[test]
    fn a_terminal_that_is_closed_asks_for_an_end_and_one_with_nohup_does_not() {
        assert_eq!(exit_code_of_child("hangup"), Some(0));
        assert_eq!(exit_code_of_child("nohup"), Some(0));
    }

    #[test]
    fn the_second_signal_exits_at_once() {
        assert_eq!(exit_code_of_child("twice"), Some(128 + SIGTERM));
    }
}
