//! `mlmtrain verify-resume`: trains the same steps without interruption and with several stops, and compares
//! the bytes of both checkpoints.

pub mod args;
mod launch;
mod subject;

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::checkpoint::{Checkpoint, CheckpointStore, Same, compare_tensors};
use crate::commands::terminal;
use crate::commands::verify_resume::args::VerifyResumeArgs;
use crate::commands::verify_resume::launch::{Ended, Run, Stop, StopSignal};
use crate::commands::verify_resume::subject::{SaveSettings, Subject};
use crate::error::Problem;
use crate::fs;
use crate::quantity::format_bytes;
use crate::telemetry::{Progress, Unit};
use crate::train::checkpoint_files::Resumed;
use crate::train::inspect::state_difference;
use crate::train::signals::Signals;

/// Number of times that a run is stopped.
const STOPS: u64 = 4;

/// Values of `save_total_limit` to try in order. A fast run may have made more steps when its last step is
/// noticed, and may have deleted the checkpoint to compare: then the next value is tried. Large models are
/// too slow for that.
const LIMITS: [u64; 3] = [2, 10, 1000];

/// Runs the subcommand.
pub fn run(args: &VerifyResumeArgs) -> Result<()> {
    let subject = Subject::load(args)?;
    let progress = Progress::detect(terminal::is_quiet());
    let signals = Signals::listen(&progress)?;
    let workplace = Workplace::create(&subject.output_dir, args.keep)?;
    if let Some(note) = subject.share_data(&workplace.folder)? {
        progress.note(&note);
    }
    let proof =
        Proof { subject: &subject, workplace: &workplace.folder, signals: &signals, progress: &progress };
    let straight = proof.straight(with_checkpoint(args.steps))?;
    let last_step = straight.step();
    let (interrupted, stops) = proof.interrupted(last_step)?;
    if args.keep {
        progress.note(&format!("both runs are left in `{}`", workplace.folder.display()));
    }
    let stops = stops.iter().map(|stop| format!("{} after step {}", stop.signal.name(), stop.step));
    let stops = stops.collect::<Vec<_>>().join(", ");
    let same = compare(straight, interrupted).map_err(|error| match error.downcast::<Different>() {
        Ok(Different(difference)) => {
            let message = format!(
                "after {last_step} steps a run that was stopped ({stops}) is not the same as one that was not: \
                 {difference}"
            );
            let hint = "the first is the undisturbed run; `--keep` leaves both to look at";
            Problem::new(message).at(args.config.display()).hint(hint).into()
        }
        Err(error) => error,
    })?;
    let size = format_bytes(same.bytes);
    terminal::stdout_line(&format!(
        "the same bytes after {last_step} steps: {} tensors in {} files ({size}), and the state of the run",
        same.tensors, same.files
    ))?;
    terminal::stdout_line(&format!("  stopped by {stops}"))
}

/// The folder of both runs, next to the output folder of the configuration. It is deleted at the end unless
/// `keep`.
struct Workplace {
    folder: PathBuf,
    keep: bool,
}

impl Workplace {
    fn create(output_dir: &Path, keep: bool) -> Result<Self> {
        let name = output_dir.file_name().map_or("run".into(), |name| name.to_string_lossy());
        let folder = output_dir.with_file_name(format!("{name}-verify-resume-{}", std::process::id()));
        fs::create_folder(&fs::parent_of(&folder))?;
        fs::create_new_folder(&folder)?;
        Ok(Self { folder, keep })
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        if !self.keep {
            // An error is ignored: a folder that cannot be removed has a telling name.
            let _ = fs::remove_folder(&self.folder);
        }
    }
}

/// The two runs of a configuration and the progress of both.
struct Proof<'a> {
    subject: &'a Subject,
    workplace: &'a Path,
    signals: &'a Signals,
    progress: &'a Progress,
}

impl Proof<'_> {
    /// Trains `steps` steps, or fewer if the run ends before, and returns the checkpoint of the last one.
    fn straight(&self, steps: u64) -> Result<Checkpoint> {
        for limit in LIMITS {
            let run = self.run("straight", steps, limit)?;
            let ended = self.with_progress(&run, |on_step| run.launch(None, on_step))?;
            let store = CheckpointStore::new(&run.folder);
            let last = match ended {
                Ended::Complete => store.steps()?.last().copied().filter(|&last| last < steps),
                Ended::Saved | Ended::Stopped(_) => None,
            };
            let last = last.unwrap_or(steps);
            if last < 2 {
                let message = format!("has {last} steps in all, which leaves none to stop it after");
                return Err(Problem::usage(message).at("training.max_steps").hint("train at least 2").into());
            }
            if fs::is_folder(&store.path_of(last)) {
                return Checkpoint::open(&store.path_of(last));
            }
        }
        Err(self.too_quick())
    }

    /// Trains `steps` steps with a stop every few steps. Returns the last checkpoint and the stops that
    /// happened.
    fn interrupted(&self, steps: u64) -> Result<(Checkpoint, Vec<Stop>)> {
        for (attempt, limit) in LIMITS.into_iter().enumerate() {
            let run = self.run("interrupted", steps, limit)?;
            let planned = stops(steps);
            let done = self.with_progress(&run, |on_step| launch_with_stops(&run, &planned, on_step))?;
            let path = CheckpointStore::new(&run.folder).path_of(steps);
            let is_last = attempt + 1 == LIMITS.len();
            let is_enough = done.len() == planned.len() || is_last && !done.is_empty();
            if is_enough && fs::is_folder(&path) {
                return Ok((Checkpoint::open(&path)?, done));
            }
        }
        Err(self.too_quick())
    }

    /// Returns a new run in an empty folder.
    fn run(&self, name: &'static str, last_step: u64, save_total_limit: u64) -> Result<Run<'_>> {
        let folder = self.workplace.join(name);
        fs::remove_folder(&folder)?;
        let saves = SaveSettings { save_steps: save_steps(last_step), save_total_limit };
        Ok(Run { subject: self.subject, name, folder, last_step, saves, signals: self.signals })
    }

    /// Calls `work` with a progress bar of the steps of `run`.
    fn with_progress<T>(
        &self,
        run: &Run<'_>,
        work: impl FnOnce(&mut dyn FnMut(u64)) -> Result<T>,
    ) -> Result<T> {
        let bar = self.progress.stage(&format!("{} run", run.name), Unit::Items, Some(run.last_step));
        let mut most = 0;
        let result = work(&mut |step| {
            let step = step.min(run.last_step);
            if step > most {
                bar.advance(step - most);
                most = step;
            }
        })?;
        bar.finish("trained");
        Ok(result)
    }

    fn too_quick(&self) -> anyhow::Error {
        Problem::new("the steps of this run are too quick to be stopped in between")
            .at(self.subject.output_dir.display())
            .hint("give more `--steps`")
            .into()
    }
}

/// Launches a run again after each of the planned stops, the last time to its end. Returns the stops that
/// happened.
fn launch_with_stops(run: &Run<'_>, planned: &[Stop], on_step: &mut dyn FnMut(u64)) -> Result<Vec<Stop>> {
    let mut done: Vec<Stop> = Vec::new();
    for stop in planned {
        // The run may have made more steps than planned before it was stopped the last time.
        let step = done.last().map_or(stop.step, |last| stop.step.max(last.step + 1));
        if step >= run.last_step {
            break;
        }
        match run.launch(Some(Stop { step, ..*stop }), on_step)? {
            Ended::Stopped(step) => done.push(Stop { step, ..*stop }),
            Ended::Saved | Ended::Complete => return Ok(done),
        }
    }
    run.launch(None, on_step)?;
    Ok(done)
}

/// Returns the stops of a run of `steps` steps, evenly spread, with SIGTERM and SIGKILL in turn.
fn stops(steps: u64) -> Vec<Stop> {
    let mut stops: Vec<Stop> = Vec::new();
    for number in 1..=STOPS {
        let step = steps * number / (STOPS + 1);
        let is_new = stops.last().is_none_or(|last| step > last.step);
        if step > 0 && step < steps && is_new {
            let signal = if stops.len().is_multiple_of(2) { StopSignal::Terminate } else { StopSignal::Kill };
            stops.push(Stop { signal, step });
        }
    }
    stops
}

/// Number of steps between two checkpoints of a run of `steps` steps: more than one, so that a SIGKILL loses
/// some steps.
fn save_steps(steps: u64) -> u64 {
    (steps / 4).max(1)
}

/// The largest number of steps, at most `steps`, after which a checkpoint is saved.
fn with_checkpoint(steps: u64) -> u64 {
    steps - steps % save_steps(steps)
}

/// The error that two checkpoints differ.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Different(String);

/// Compares weights and moments byte for byte, then the rest of the state.
fn compare(straight: Checkpoint, interrupted: Checkpoint) -> Result<Same> {
    let same = compare_tensors(&straight, &interrupted)?.map_err(|found| Different(found.to_string()))?;
    let straight = Resumed::read(straight)?;
    let interrupted = Resumed::read(interrupted)?;
    match state_difference(&straight.state, &interrupted.state)? {
        None => Ok(same),
        Some(difference) => Err(Different(format!("trainer/state.json: {difference}")).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_are_spread_and_of_both_kinds() {
        for (steps, expected) in
            [(20, &["T4", "K8", "T12", "K16"][..]), (4, &["T1", "K2", "T3"]), (2, &["T1"]), (1, &[])]
        {
            let stops = stops(steps);
            let texts = stops.iter().map(|stop| format!("{}{}", &stop.signal.name()[3..4], stop.step));
            assert_eq!(texts.collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn a_checkpoint_is_due_at_the_last_step() {
        assert_eq!([2, 7, 11, 20, 101].map(with_checkpoint), [2, 7, 10, 20, 100]);
        for steps in (2..2000).map(with_checkpoint) {
            assert_eq!((steps % save_steps(steps), with_checkpoint(steps)), (0, steps));
        }
    }

    #[test]
    fn the_folder_of_the_runs_is_removed_unless_it_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        for keep in [false, true] {
            let workplace = Workplace::create(&folder.path().join("runs/a"), keep).unwrap();
            let path = workplace.folder.clone();
            std::fs::write(path.join("file"), "x").unwrap();
            drop(workplace);
            assert_eq!((path.exists(), path.parent().unwrap().file_name()), (keep, Some("runs".as_ref())));
        }
    }
}
