//! Progress on stderr: bars on a terminal, plain lines elsewhere, nothing but warnings with `-q`; or JSON.
//!
//! Writing here never fails: a closed or full stderr is no reason to stop.

pub mod events;
mod stage;
mod text;
mod training;

use std::io::IsTerminal;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use indicatif::MultiProgress;
use indicatif::ProgressBar;
use indicatif::ProgressStyle;
use serde_json::json;

use crate::secrets;
use crate::telemetry::log;

pub use stage::Stage;
pub use stage::Unit;
pub use training::TrainingProgress;

/// Bars are drawn anew this often even when nothing moves, so that the clock runs.
const TICK: Duration = Duration::from_millis(500);

/// The terminal, or what stands for it; clones write to the same place.
#[derive(Clone)]
pub struct Progress {
    mode: Mode,
    /// Stands before what is said, where several runs say something at once.
    label: Option<Arc<str>>,
    out: Arc<Mutex<dyn Write + Send>>,
}

#[derive(Clone)]
enum Mode {
    Silent,
    Lines,
    Events,
    Bars { bars: MultiProgress, color: bool },
}

impl Progress {
    /// Events where they were asked for; bars if stderr is a terminal that can move its cursor, else lines; nothing
    /// if `quiet`. `NO_COLOR` is respected.
    pub fn detect(quiet: bool) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let able =
            std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let mode = match (quiet, able) {
            _ if events::are_on() => Mode::Events,
            (true, _) => Mode::Silent,
            (false, true) => Mode::Bars { bars: MultiProgress::new(), color: !set("NO_COLOR") },
            (false, false) => Mode::Lines,
        };
        Self { mode, label: None, out: Arc::new(Mutex::new(std::io::stderr())) }
    }

    /// No progress, warnings only: for callers that are no command, such as tests.
    pub fn silent() -> Self {
        Self::detect(true)
    }

    /// Plain lines to `out`.
    pub fn lines(out: impl Write + Send + 'static) -> Self {
        Self { mode: Mode::Lines, label: None, out: Arc::new(Mutex::new(out)) }
    }

    /// The same place, with `label` before all that is said.
    #[must_use]
    pub fn labelled(&self, label: &str) -> Self {
        Self { label: Some(label.into()), ..self.clone() }
    }

    fn with_label(&self, text: &str) -> String {
        self.label.as_ref().map_or_else(|| text.to_string(), |label| format!("{label}: {text}"))
    }

    /// Says something worth a line, above the bars; silent with `-q`, but for the log file.
    pub fn note(&self, text: &str) {
        self.log(text);
        if !matches!(self.mode, Mode::Silent) {
            self.print(text);
        }
    }

    /// Says what was decided on the way, with `-v`.
    pub fn detail(&self, text: &str) {
        if log::is_verbose() {
            self.note(text);
        }
    }

    /// Warns, also with `-q`.
    pub fn warn(&self, text: &str) {
        let line = format!("warning: {text}");
        self.log(&line);
        if self.sends_events() {
            events::send_text("warning", &self.with_label(text));
        } else {
            self.print(&line);
        }
    }

    /// Tells a program that started this one where the run lies; people are told at its end.
    pub fn run_folder(&self, folder: &Path) {
        if self.sends_events() {
            events::send("run", json!({"folder": folder.display().to_string()}));
        }
    }

    /// Adds a line to the log file alone.
    fn log(&self, text: &str) {
        if let Some(warning) = log::add(&self.with_label(text)) {
            self.print(&warning);
        }
    }

    /// The bar of a training run in `folder` of `total_steps` updates of which `done_steps` were done before; a
    /// sink for its records.
    pub fn training(&self, folder: &Path, total_steps: u64, done_steps: u64) -> TrainingProgress {
        TrainingProgress::new(self.clone(), folder, total_steps, done_steps)
    }

    /// The bar of a stage such as reading a corpus; `total` is unknown for pipes.
    pub fn stage(&self, label: &str, unit: Unit, total: Option<u64>) -> Stage {
        Stage::new(self.clone(), label, unit, total)
    }

    fn print(&self, text: &str) {
        let text = self.with_label(text);
        if self.sends_events() {
            return events::send_text("note", &text);
        }
        let text = secrets::masked(&text);
        let write = || {
            if let Ok(mut out) = self.out.lock() {
                let _ = writeln!(out, "{text}");
                let _ = out.flush();
            }
        };
        match &self.mode {
            // A bar that is being drawn would run through the line.
            Mode::Bars { bars, .. } => bars.suspend(write),
            _ => write(),
        }
    }

    /// A bar of this layout, on a terminal only; `plain` is the template, its `{bar}` is coloured where that
    /// is wanted.
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

    /// Takes a bar off the terminal; a cleared one that is not removed would keep an empty line.
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
    use crate::telemetry::Record;
    use crate::telemetry::Sink;

    /// A place that tests can look into.
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
        training.finish().unwrap();
        let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("reading corpus: 12 documents (3.00 MiB in "), "{text}");
        assert!(lines[1].starts_with("step 5/10  epoch 0.50  loss 2.5000"), "{text}");
        assert_eq!(lines[2], "warning: the disk is slow");
        assert_eq!(lines.len(), 3);
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
