//! `mlmtrain verify-resume`: a straight run and one that is stopped again and again, and whether they come to
//! the same bytes.

pub mod args;
mod sitting;
mod subject;

use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;

use crate::checkpoint::Checkpoint;
use crate::checkpoint::CheckpointStore;
use crate::checkpoint::Same;
use crate::checkpoint::compare_tensors;
use crate::commands::terminal;
use crate::commands::verify_resume::args::VerifyResumeArgs;
use crate::commands::verify_resume::sitting::Blow;
use crate::commands::verify_resume::sitting::Ended;
use crate::commands::verify_resume::sitting::Run;
use crate::commands::verify_resume::sitting::Stop;
use crate::commands::verify_resume::subject::Cadence;
use crate::commands::verify_resume::subject::Subject;
use crate::error::Problem;
use crate::fs;
use crate::quantity::format_bytes;
use crate::telemetry::Progress;
use crate::telemetry::Unit;
use crate::train::inspect::state_difference;
use crate::train::saved::Resumed;
use crate::train::signals::Signals;

/// How often a run is stopped.
const STOPS: u64 = 4;

/// Checkpoints that a run keeps. A run may be some steps further than asked for when it is seen, and has then
/// deleted the checkpoint that counts: the next number is tried. Large models are slow, so that only small
/// ones come to it.
const LIMITS: [u64; 3] = [2, 10, 1000];

/// Runs the subcommand.
pub fn run(args: &VerifyResumeArgs) -> Result<()> {
    let subject = Subject::load(args)?;
    let progress = Progress::detect(terminal::is_quiet());
    let signals = Signals::listen()?;
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
    let stops = stops.iter().map(|stop| format!("{} after step {}", stop.blow.name(), stop.step));
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

/// The folder of both runs, beside the output folder of the configuration.
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
            // What cannot be removed has the name of what it is.
            let _ = fs::remove_folder(&self.folder);
        }
    }
}

struct Proof<'a> {
    subject: &'a Subject,
    workplace: &'a Path,
    signals: &'a Signals,
    progress: &'a Progress,
}

impl Proof<'_> {
    /// Trains `steps` steps, or as many as the run has, and gives the checkpoint of the last of them.
    fn straight(&self, steps: u64) -> Result<Checkpoint> {
        for limit in LIMITS {
            let run = self.run("straight", steps, limit)?;
            let ended = self.told(&run, |seen| run.sit(None, seen))?;
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

    /// Trains `steps` steps with a stop every few of them; with the stops that there were.
    fn interrupted(&self, steps: u64) -> Result<(Checkpoint, Vec<Stop>)> {
        for (attempt, limit) in LIMITS.into_iter().enumerate() {
            let run = self.run("interrupted", steps, limit)?;
            let planned = stops(steps);
            let done = self.told(&run, |seen| stop_again_and_again(&run, &planned, seen))?;
            let path = CheckpointStore::new(&run.folder).path_of(steps);
            let is_last = attempt + 1 == LIMITS.len();
            let is_enough = done.len() == planned.len() || is_last && !done.is_empty();
            if is_enough && fs::is_folder(&path) {
                return Ok((Checkpoint::open(&path)?, done));
            }
        }
        Err(self.too_quick())
    }

    /// A run that begins afresh.
    fn run(&self, name: &'static str, last_step: u64, save_total_limit: u64) -> Result<Run<'_>> {
        let folder = self.workplace.join(name);
        fs::remove_folder(&folder)?;
        let cadence = Cadence { save_steps: save_steps(last_step), save_total_limit };
        Ok(Run { subject: self.subject, name, folder, last_step, cadence, signals: self.signals })
    }

    /// Does something with a run, with a bar of its steps.
    fn told<T>(&self, run: &Run<'_>, work: impl FnOnce(&mut dyn FnMut(u64)) -> Result<T>) -> Result<T> {
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

/// All sittings of a run, the last one to its end; the stops that there were.
fn stop_again_and_again(run: &Run<'_>, planned: &[Stop], seen: &mut dyn FnMut(u64)) -> Result<Vec<Stop>> {
    let mut done: Vec<Stop> = Vec::new();
    for stop in planned {
        // It may have come further than it was to come.
        let step = done.last().map_or(stop.step, |last| stop.step.max(last.step + 1));
        if step >= run.last_step {
            break;
        }
        match run.sit(Some(Stop { step, ..*stop }), seen)? {
            Ended::Stopped(step) => done.push(Stop { step, ..*stop }),
            Ended::Saved | Ended::Complete => return Ok(done),
        }
    }
    run.sit(None, seen)?;
    Ok(done)
}

/// The stops of a run of so many steps: evenly spread, the kinds in turn.
fn stops(steps: u64) -> Vec<Stop> {
    let mut stops: Vec<Stop> = Vec::new();
    for number in 1..=STOPS {
        let step = steps * number / (STOPS + 1);
        let is_new = stops.last().is_none_or(|last| step > last.step);
        if step > 0 && step < steps && is_new {
            let blow = if stops.len().is_multiple_of(2) { Blow::Terminate } else { Blow::Kill };
            stops.push(Stop { blow, step });
        }
    }
    stops
}

/// Steps between two checkpoints of a run of so many steps: a kill loses some.
fn save_steps(steps: u64) -> u64 {
    (steps / 4).max(1)
}

/// The most steps up to `steps` after which a checkpoint is due.
fn with_checkpoint(steps: u64) -> u64 {
    steps - steps % save_steps(steps)
}

/// Two checkpoints are not the same.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Different(String);

/// Weights and moments byte for byte, then the rest of the state.
fn compare(straight: Checkpoint, interrupted: Checkpoint) -> Result<Same> {
    let same = compare_tensors(&straight, &interrupted)?.map_err(|found| Different(found.to_string()))?;
    let (straight, interrupted) = (Resumed::read(straight)?, Resumed::read(interrupted)?);
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
        let text = |steps| {
            let stops = stops(steps);
            stops.iter().map(|stop| format!("{}{}", &stop.blow.name()[3..4], stop.step)).collect::<Vec<_>>()
        };
        assert_eq!(text(20), ["T4", "K8", "T12", "K16"]);
        assert_eq!(text(4), ["T1", "K2", "T3"]);
        assert_eq!(text(2), ["T1"]);
        assert_eq!(text(1), [""; 0]);
    }

    #[test]
    fn a_checkpoint_is_due_at_the_last_step() {
        assert_eq!([2, 7, 11, 20, 101].map(with_checkpoint), [2, 7, 10, 20, 100]);
        for steps in (2..2000).map(with_checkpoint) {
            assert_eq!((steps % save_steps(steps), with_checkpoint(steps)), (0, steps));
        }
    }

    #[test]
    fn the_folder_of_the_runs_goes_with_them_unless_it_is_to_be_kept() {
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
