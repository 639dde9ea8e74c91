//! Folders in which runs take place, copied from one that holds all that a run begins with, and what can be
//! seen of a run from outside while it is under way.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;
use tempfile::TempDir;

use crate::compare::Reference;
use crate::job;
use crate::job::Job;
use crate::options::Options;
use crate::readers::{Runs, copy_tree};
use crate::sitting::Sitting;

/// A whole run takes a second; far more than that is a hang.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// What all rows share: the program, the counts, a folder to copy, undisturbed runs to compare with.
pub(crate) struct Bench {
    pub(crate) program: PathBuf,
    pub(crate) seed: u64,
    /// Where results are kept.
    pub(crate) output: Option<PathBuf>,
    is_full: bool,
    scratch: TempDir,
    next: AtomicUsize,
    references: Mutex<BTreeMap<Job, Arc<Reference>>>,
}

impl Bench {
    /// Prepares the text and the model that all runs begin with.
    pub(crate) fn new(options: &Options) -> Result<Self> {
        let scratch = tempfile::Builder::new().prefix("torture-").tempdir_in(&options.scratch)?;
        let bench = Self {
            program: options.program.clone(),
            seed: options.seed,
            output: options.output.clone(),
            is_full: options.is_full,
            scratch,
            next: AtomicUsize::new(0),
            references: Mutex::default(),
        };
        let template = Place { root: bench.template(), is_kept: true };
        fs::create_dir(&template.root)?;
        job::write_material(&template.root)?;
        // Both tokenizers and both sets of shards, and a model to fine-tune.
        for (job, sets) in
            [(Job::Electra, ["training.max_steps=1"]), (Job::Pretrain, ["training.max_steps=20"])]
        {
            Sitting::start(bench.command(job, &template, &sets), &template)?.finish()?.ok()?;
            if job == Job::Pretrain {
                fs::rename(template.run_path("final"), template.path("base"))?;
            }
            fs::remove_dir_all(template.run())?;
        }
        for name in ["out", "err"] {
            fs::remove_file(template.path(name))?;
        }
        Ok(bench)
    }

    fn template(&self) -> PathBuf {
        self.scratch.path().join("template")
    }

    /// The full count, or a small one.
    pub(crate) fn count(&self, quick: usize, full: usize) -> usize {
        if self.is_full { full } else { quick }
    }

    /// What runs left, to be damaged.
    pub(crate) fn damaged_runs(&self) -> Result<PathBuf> {
        let folder = self.fresh_path("runs-");
        Runs::make(&folder, &mut |arguments, code| {
            let mut command = Command::new(&self.program);
            command.args(arguments);
            let place = Place { root: folder.clone(), is_kept: true };
            let fault = Sitting::start(command, &place)?.finish()?.fault(&[i32::from(code)]);
            fault.map_or(Ok(()), |fault| bail!("{arguments:?}: {fault}"))
        })?;
        Ok(folder)
    }

    /// A name below the scratch folder that nothing else has.
    pub(crate) fn fresh_path(&self, prefix: &str) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        self.scratch.path().join(format!("{prefix}{number}"))
    }

    /// A folder with all that a run begins with; it goes when it is dropped.
    pub(crate) fn place(&self) -> Result<Place> {
        self.place_at(&self.fresh_path("place-"))
    }

    /// The same under a name of the row's choice.
    pub(crate) fn place_at(&self, root: &Path) -> Result<Place> {
        copy_tree(&self.template(), root)?;
        Ok(Place { root: root.to_path_buf(), is_kept: false })
    }

    /// The program, to run `job` in `place`, with each of `sets` behind a `--set`.
    pub(crate) fn command(&self, job: Job, place: &Place, sets: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(job.arguments()).args(sets.iter().flat_map(|set| ["--set", set]));
        command.current_dir(&place.root);
        command
    }

    /// The program in `place` with these arguments alone.
    pub(crate) fn bare(&self, arguments: &[&str], place: &Place) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(&place.root);
        command
    }

    /// The same under another program, such as `strace` with its options.
    pub(crate) fn command_under(&self, under: &[&str], job: Job, place: &Place, sets: &[&str]) -> Command {
        let inner = self.command(job, place, sets);
        let mut command = Command::new(under[0]);
        command.args(&under[1..]).arg(inner.get_program()).args(inner.get_args()).current_dir(&place.root);
        command
    }

    /// Runs `job` in `place` to its end.
    pub(crate) fn finish(&self, job: Job, place: &Place, sets: &[&str]) -> Result<crate::sitting::Ended> {
        Sitting::start(self.command(job, place, sets), place)?.finish()
    }

    /// An undisturbed run of `job`.
    pub(crate) fn reference(&self, job: Job) -> Result<Arc<Reference>> {
        let known = self.references.lock().expect("nothing panics with it").get(&job).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let place = self.place()?;
        let ended = self.finish(job, &place, &[])?.ok()?;
        let reference = Arc::new(Reference::of(&place, ended.seconds)?);
        let again = self.place()?;
        self.finish(job, &again, &[])?.ok()?;
        if let Some(difference) = reference.difference(&again) {
            bail!("two undisturbed runs of {} differ: {difference}", job.name());
        }
        self.references.lock().expect("nothing panics with it").insert(job, Arc::clone(&reference));
        Ok(reference)
    }
}

/// A folder in which a run takes place.
pub(crate) struct Place {
    root: PathBuf,
    is_kept: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_kept {
            // It lies below a folder that goes as a whole.
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

impl Place {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The run folder.
    pub(crate) fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    pub(crate) fn run_path(&self, name: &str) -> PathBuf {
        self.run().join(name)
    }

    /// The last step with a training record in `metrics.jsonl`; 0 where there is none.
    pub(crate) fn last_step(&self) -> u64 {
        let text = fs::read_to_string(self.run_path("metrics.jsonl")).unwrap_or_default();
        let records = text.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut training = records.filter(|record| !record["train/loss"].is_null());
        training.next().and_then(|record| record["step"].as_u64()).unwrap_or(0)
    }

    /// Whether a checkpoint is half written.
    pub(crate) fn is_saving(&self) -> bool {
        self.names().iter().any(|name| name.starts_with(".tmp-checkpoint-"))
    }

    /// Steps of the checkpoint folders, ascending, whatever is in them.
    pub(crate) fn checkpoints(&self) -> Vec<u64> {
        let names = self.names();
        let steps = names.iter().filter_map(|name| name.strip_prefix("checkpoint-")?.parse().ok());
        let mut steps: Vec<u64> = steps.collect();
        steps.sort_unstable();
        steps
    }

    /// What lies in the run folder.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.run()).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// A place that is there already; nothing of it is removed.
    pub(crate) fn at(root: &Path) -> Self {
        Self { root: root.to_path_buf(), is_kept: true }
    }
}
