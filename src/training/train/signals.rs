//! SIGINT, SIGTERM, SIGUSR1 and SIGHUP ask for a checkpoint and an end, which a line confirms; a second one
//! of the first three ends the process at once. A closed terminal may send SIGHUP twice, so a second SIGHUP
//! does not end the process; under `nohup` the program ignores SIGHUP.
//!
//! Nothing is saved here: the training loop calls [`Signals::received`] wherever it waits, and stops if there
//! was a signal.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::{fmt, thread};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Handle;
use signal_hook::low_level::emulate_default_handler;
use signal_hook::{flag, iterator};

use crate::telemetry::Progress;
use base::error::{Class, Problem};
use base::fs;
use model::distributed;

/// The signals received so far; cheap to clone and to query, from any thread.
#[derive(Debug, Clone, Default)]
pub struct Signals {
    number: Arc<AtomicUsize>,
    confirmation: Option<Arc<Confirmation>>,
}

impl Signals {
    /// Starts listening. The first signal is confirmed by a line in `progress`; the second one exits with 128
    /// + its number without cleaning up.
    pub fn listen(progress: &Progress) -> Result<Self> {
        let confirmation = Arc::new(Confirmation { progress: progress.clone(), printed: Once::new() });
        let signals = Self { confirmation: Some(Arc::clone(&confirmation)), ..Self::default() };
        let armed = Arc::new(AtomicBool::new(false));
        let mut heard = vec![SIGINT, SIGTERM, SIGUSR1];
        heard.extend((!is_ignored(SIGHUP)).then_some(SIGHUP));
        for &signal in &heard {
            signals.register(signal, &armed).with_context(|| format!("cannot listen to signal {signal}"))?;
        }
        // A signal handler must not write to a terminal, so a thread does.
        let mut arrivals = iterator::Signals::new(&heard)?;
        thread::spawn(move || arrivals.forever().next().map(|signal| confirmation.print(signal)));
        distributed::listen()?;
        Ok(signals)
    }

    /// Registers the actions of `signal`. They run in the order of their registration: the exit checks the
    /// flag `armed` before this signal sets it.
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
            number => {
                self.confirmation.iter().for_each(|line| line.print(number as i32));
                Some(number as u8)
            }
        }
    }
}

/// The line that confirms the first signal.
struct Confirmation {
    progress: Progress,
    printed: Once,
}

impl Confirmation {
    /// Prints the line, unless it is printed already. It waits for another thread that is printing it.
    fn print(&self, signal: i32) {
        self.printed.call_once(|| {
            let second =
                if signal == SIGHUP { "" } else { "; a second signal ends the program without saving" };
            let by = name_of(signal);
            self.progress.note(&format!("{by}: stopping at the next safe point, then saving{second}"));
        });
    }
}

impl fmt::Debug for Confirmation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Confirmation")
    }
}

/// While this value lives, a signal ends the program at once, after a line that says so: for work that keeps
/// what is done at any moment. Afterwards the program has to listen with [`Signals::listen`], or to end.
pub struct EndAtOnce {
    handle: Handle,
}

impl EndAtOnce {
    /// Starts listening; `kept` is the end of the line and tells what is kept.
    pub fn listen(progress: &Progress, kept: &'static str) -> Result<Self> {
        let heard = [SIGINT, SIGTERM, SIGUSR1].into_iter().filter(|&signal| !is_ignored(signal));
        let mut arrivals = iterator::Signals::new(heard)?;
        let handle = arrivals.handle();
        let progress = progress.clone();
        thread::spawn(move || {
            if let Some(signal) = arrivals.forever().next() {
                progress.note(&format!("stopped by {}; {kept}", name_of(signal)));
                let _ = emulate_default_handler(signal);
            }
        });
        Ok(Self { handle })
    }
}

impl Drop for EndAtOnce {
    fn drop(&mut self) {
        self.handle.close();
    }
}

/// The name of a signal in messages.
fn name_of(signal: i32) -> String {
    if signal == SIGINT { "Ctrl-C".to_string() } else { format!("signal {signal}") }
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
    Problem::new(format!("stopped by {}; {saved}", name_of(i32::from(signal))))
        .class(Class::Interrupted(signal))
        .hint("the same command continues from there")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Output;
    use std::time::Duration;

    use super::*;

    const CHILD: &str = "MLMTRAIN_TEST_SIGNAL_CHILD";

    // Signals reach a whole process, so each case runs in a child: this same test binary with a variable set.
    fn output_of_child(mode: &str) -> Output {
        let program = std::env::current_exe().unwrap();
        // The tests themselves may run under `nohup`, whose processes ignore SIGHUP.
        let launcher: &[&str] = match mode {
            "nohup" => &["nohup"],
            _ => &["env", "--default-signal=HUP"],
        };
        let arguments = ["--exact", "train::signals::tests::child", "--nocapture", "--test-threads=1"];
        std::process::Command::new(launcher[0])
            .args(&launcher[1..])
            .arg(&program)
            .args(arguments)
            .env(CHILD, mode)
            .output()
            .unwrap()
    }

    fn exit_code_of_child(mode: &str) -> Option<i32> {
        output_of_child(mode).status.code()
    }

    #[test]
    fn child() {
        let Ok(mode) = std::env::var(CHILD) else { return };
        if mode == "at once" {
            let _listening =
                EndAtOnce::listen(&Progress::lines(std::io::stderr()), "files are kept").unwrap();
            signal_hook::low_level::raise(SIGTERM).unwrap();
            // The signal ends the process; without it, the test below fails by the exit code.
            thread::sleep(Duration::from_secs(60));
            return;
        }
        let signals = Signals::listen(&Progress::silent()).unwrap();
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
    fn work_that_needs_no_saving_ends_at_the_first_signal_and_says_what_is_kept() {
        let output = output_of_child("at once");
        assert_eq!(output.status.signal(), Some(SIGTERM));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("stopped by signal 15; files are kept"), "{told}");
    }

    #[test]
    fn the_second_signal_exits_at_once() {
        assert_eq!(exit_code_of_child("twice"), Some(128 + SIGTERM));
    }
}
