//! Shows progress on stderr: as bars on a terminal, else as plain lines, as warnings only with `-q`, or as
//! JSON with `--events`.
//!
//! Errors of writing are ignored: a closed or full stderr is no reason to stop.

pub mod events;
mod stage;
mod text;
mod training;

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::json;

use crate::telemetry::log;
use base::secrets;

pub use stage::{Stage, Unit};
pub use training::TrainingProgress;

/// Interval at which bars are redrawn even without progress, so that their clock advances.
const TICK: Duration = Duration::from_millis(500);

/// The output of progress, usually stderr; clones write to the same output.
#[derive(Clone)]
pub struct Progress {
    mode: Mode,
    /// Prefix of each message, for several runs at once.
    label: Option<Arc<str>>,
    out: Arc<Mutex<dyn Write + Send>>,
    /// The notes that are printed once for all runs of the command.
    noted: Arc<Mutex<BTreeSet<String>>>,
}

#[derive(Clone)]
enum Mode {
    Silent,
    Lines,
    Events,
    Bars { bars: MultiProgress, color: bool },
}

impl Progress {
    /// Chooses the form of progress: events if they were asked for; no progress if `quiet`; bars if stderr is
    /// a terminal that can move its cursor; else lines. Respects `NO_COLOR`.
    pub fn detect(quiet: bool) -> Self {
        let has_bars =
            std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let mode = match (quiet, has_bars) {
            _ if events::are_on() => Mode::Events,
            (true, _) => Mode::Silent,
            (false, true) => Mode::Bars { bars: MultiProgress::new(), color },
            (false, false) => Mode::Lines,
        };
        Self { mode, label: None, out: Arc::new(Mutex::new(std::io::stderr())), noted: Arc::default() }
    }

    /// Returns an output of warnings only, without progress, for callers other than commands, such as tests.
    pub fn silent() -> Self {
        Self::detect(true)
    }

    /// Returns an output of plain lines to `out`.
    pub fn lines(out: impl Write + Send + 'static) -> Self {
        Self { mode: Mode::Lines, label: None, out: Arc::new(Mutex::new(out)), noted: Arc::default() }
    }

    /// Returns a handle to the same output that puts `label: ` before each message.
    #[must_use]
    pub fn labelled(&self, label: &str) -> Self {
        Self { label: Some(label.into()), ..self.clone() }
    }

    fn with_label(&self, text: &str) -> String {
        self.label.as_ref().map_or_else(|| text.to_string(), |label| format!("{label}: {text}"))
    }

    /// Prints a line above the bars and adds it to the log file; with `-q` to the log file only.
    pub fn note(&self, text: &str) {
        self.log(text);
        if !matches!(self.mode, Mode::Silent) {
            self.print(text);
        }
    }

    /// Prints a note without the label, unless a run of the same command has printed it: for notes about what
    /// several runs share.
    pub fn note_once(&self, text: &str) {
        let is_new = self.noted.lock().map_or(true, |mut noted| noted.insert(text.to_string()));
        if is_new {
            Self { label: None, ..self.clone() }.note(text);
        }
    }

    /// Prints a detail, such as a decision on the way, if `-v` was given.
    pub fn detail(&self, text: &str) {
        if log::is_verbose() {
            self.note(text);
        }
    }

    /// Prints a warning, also with `-q`, and adds it to the log file.
    pub fn warn(&self, text: &str) {
        let line = format!("warning: {text}");
        self.log(&line);
        if self.sends_events() {
            events::send_text("warning", &self.with_label(text));
        } else {
            self.print(&line);
        }
    }

    /// Sends the path of the run folder as an event. Without events, the path is printed at the end of the
    /// run instead.
    pub fn run_folder(&self, folder: &Path) {
        if self.sends_events() {
            events::send("run", json!({"folder": folder.display().to_string()}));
        }
    }

    /// Adds a line to the log file only.
    fn log(&self, text: &str) {
        if let Some(warning) = log::add(&self.with_label(text)) {
            self.print(&warning);
        }
    }

    /// Returns the bar of a training run in `folder`, which is also a sink for its records. `done_steps` of
    /// the `total_steps` updates were done before.
    pub fn training(&self, folder: &Path, total_steps: u64, done_steps: u64) -> TrainingProgress {
        TrainingProgress::new(self.clone(), folder, total_steps, done_steps)
    }

    /// Returns the bar of a stage such as reading a corpus; `total` is `None` if it is unknown, as for pipes.
    pub fn stage(&self, label: &str, unit: Unit, total: Option<u64>) -> Stage {
        Stage::new(self.clone(), label, unit, total)
    }

    fn print(&self, text: &str) {
        let text = self.with_label(text);
        if self.sends_events() {
            return events::send_text("note", &text);
        }
        let text = secrets::masked(&text);
        match &self.mode {
            // Bars are hidden meanwhile: one that is being drawn would overwrite a part of the line.
            Mode::Bars { bars, .. } => bars.suspend(|| self.write_line(&text)),
            _ => self.write_line(&text),
        }
    }

    fn write_line(&self, text: &str) {
        if let Ok(mut out) = self.out.lock() {
            let _ = writeln!(out, "{text}");
            let _ = out.flush();
        }
    }

    /// Adds a bar with the template `plain`; returns `None` if bars are not shown. The template's `{bar}` is
    /// coloured if colours are on.
    fn bar(&self, total: Option<u64>, plain: &str) -> Option<ProgressBar> {
        let Mode::Bars { bars, color } = &self.mode else { return None };
        let bar = bars.add(total.map_or_else(ProgressBar::no_length, ProgressBar::new));
        let template = plain.replace("{bar}", if *color { "{bar:16.cyan/dim}" } else { "{bar:16}" });
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style.progress_chars("━━─"));
        }
        bar.enable_steady_tick(TICK);
        Some(bar)
    }

    /// Removes a bar from the terminal. A bar that is only cleared would leave an empty line.
    fn remove(&self, bar: &ProgressBar) {
        bar.finish_and_clear();
        if let Mode::Bars { bars, .. } = &self.mode {
            bars.remove(bar);
        }
    }

    fn prints_lines(&self) -> bool {
        matches!(self.mode, Mode::Lines)
    }

    fn sends_events(&self) -> bool {
        matches!(self.mode, Mode::Events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{Record, Sink};

    /// An output whose bytes tests can read.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn record(step: u64) -> Record {
        Record { step, epoch: 0.5, values: vec![("train/loss".to_string(), 2.5)] }
    }

    #[test]
    fn without_a_terminal_there_is_a_line_for_each_record_and_stage() {
        let out = Shared::default();
        let progress = Progress::lines(out.clone());
        let stage = progress.stage("reading corpus", Unit::Bytes, Some(3 << 20));
        stage.advance(3 << 20);
        stage.finish("12 documents");
        let mut training = progress.training(Path::new("run"), 10, 0);
        training.step(5);
        training.write(&record(5)).unwrap();
        progress.warn("the disk is slow");
        for label in ["seed 1", "seed 2"] {
            progress.labelled(label).note_once("3 texts are cut");
        }
        training.finish().unwrap();
        let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("reading corpus: 12 documents (3.00 MiB in "), "{text}");
        assert!(lines[1].starts_with("step 5/10  epoch 0.50  loss 2.5000"), "{text}");
        assert_eq!(lines[2], "warning: the disk is slow");
        assert_eq!(lines[3], "3 texts are cut");
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn the_remaining_time_is_at_most_that_of_a_time_limit() {
        let mut training = Progress::silent().training(Path::new("run"), 1 << 50, 0);
        assert!(training.remaining_seconds(1).is_some_and(|seconds| seconds > 5.0));
        training.end_within(5.0);
        assert!(training.remaining_seconds(1).is_some_and(|seconds| (0.0..=5.0).contains(&seconds)));
        training.end_within(0.0);
        assert_eq!(training.remaining_seconds(1).map(f64::to_bits), Some(0.0_f64.to_bits()));
    }

    #[test]
    fn a_closed_output_stops_nothing() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
        }
        let progress = Progress::lines(Closed);
        progress.note("hello");
        progress.training(Path::new("run"), 10, 0).write(&record(1)).unwrap();
    }
}
