//! Probes: the scores on tasks of a model that is still being pretrained.
//!
//! A probe fine-tunes copies of the weights on each task, and judges minimal pairs by which sentence is
//! likelier. After an interruption its finished cells are kept, and used when the same weights are probed
//! again.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::tasks::finetuning_task::{Examples, FinetuningTask};
use crate::tasks::list;
use crate::tasks::list::FinetunedVisitor;
use crate::tasks::minimal_pairs::{Likelihood, Masking, Pair, read_pairs};
use crate::tasks::run::Scores;
use crate::telemetry::Progress;
use crate::train::probe::Probe;
use crate::trials::cell::{Cell, file_name, require_files};
use crate::trials::equipment::Equipment;
use crate::trials::record;
use base::error::{Class, Problem, class_of};
use base::fs;
use base::scores::mean;
use config::{EvaluationConfig, NamedTask, PrecisionConfig, PretrainConfig, WeightGradients};
use model::interop::{PretrainedFolder, read_folder};

/// The folder for probes inside the run folder.
const FOLDER: &str = "probes";

/// Length of the hash of the weights in the name of a probe's folder.
const HASH_CHARS: usize = 16;

/// Number of minimal pairs that are judged between two checks for a signal.
const PAIRS_AT_ONCE: usize = 256;

/// The tasks and minimal pairs that a pretraining run is probed with.
pub struct Probes<'a> {
    tasks: Vec<NamedTask>,
    pairs: Vec<Vec<Pair>>,
    /// Names of the scores: first those of the tasks, then those of the files of minimal pairs.
    names: Vec<String>,
    /// Number of steps between two probes.
    every: u64,
    folder: PathBuf,
    with: Equipment<'a>,
}

impl<'a> Probes<'a> {
    /// Returns the probes of a pretraining run, or `None` if it has none. `tasks` are the tasks of its key
    /// `evaluation.probes`, `precision` is that of the run. Every file is read once, so that a wrong line is
    /// found before the first step.
    pub fn new(
        config: &PretrainConfig,
        mut tasks: Vec<NamedTask>,
        precision: &PrecisionConfig,
        with: Equipment<'a>,
    ) -> Result<Option<Self>> {
        let EvaluationConfig { probes: _, minimal_pairs, probe_steps: every, loss_band: _ } =
            &config.evaluation;
        if !config.evaluation.has_probes() {
            return Ok(None);
        }
        require_files(tasks.iter().map(|task| &task.config))?;
        for task in &mut tasks {
            let note = task.config.data.choose_sequence_length(config.data.max_seq_length);
            if let Some(note) = note {
                with.progress.note(&format!("{}: {note}", task.name));
            }
            check(task, config.data.max_seq_length)?;
            // A task may add up micro-batches, and its scores are compared with those of other runs.
            task.config.precision =
                PrecisionConfig { weight_gradients: WeightGradients::F32, ..precision.clone() };
            list::finetuned(task.config.goal(), ReadExamples(task))?;
        }
        let names: Vec<String> = tasks
            .iter()
            .map(|task| task.name.clone())
            .chain(
                minimal_pairs
                    .iter()
                    .map(|path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned()),
            )
            .collect();
        if let Some(twice) = (1..names.len()).find(|&at| names[..at].contains(&names[at])) {
            let message = format!("two probes are called `{}`", names[twice]);
            return Err(Problem::usage(message).at("evaluation").hint("rename one of them").into());
        }
        let pairs = minimal_pairs.iter().map(|path| read_pairs(path, None)).collect::<Result<_>>()?;
        let folder = config.run.output_dir.join(FOLDER);
        Ok(Some(Self { tasks, pairs, names, every: *every, folder, with }))
    }

    /// Returns the mean score of one task over its seeds; `None` if all of them diverged.
    fn score(&self, task: &NamedTask, folder: &PretrainedFolder, output: &Path) -> Result<Option<f64>> {
        // The notes of each fine-tuning run would drown those of the pretraining run.
        let machine = self.with.machine.with_f32_gradients();
        let with = Equipment { machine: &machine, progress: &Progress::silent(), ..self.with };
        let scores = list::finetuned(task.config.goal(), FinetuneSeeds { task, folder, output, with })?;
        // If the score of one seed is NaN (not defined), so is the mean.
        Ok((!scores.is_empty()).then(|| mean(&scores)))
    }

    /// Returns the share of minimal pairs whose right sentence is the likelier one; `None` after a signal.
    fn share(&self, pairs: &[Pair], model: &Path) -> Result<Option<f64>> {
        let likelihood = Likelihood::open(model, &self.with.machine.device, Masking::Token)?;
        let mut right = 0;
        for some in pairs.chunks(PAIRS_AT_ONCE) {
            if self.with.signals.received().is_some() {
                return Ok(None);
            }
            right += likelihood.judge(some, &mut |_| {})?.iter().filter(|judged| judged.is_right()).count();
        }
        Ok(Some(right as f64 / pairs.len() as f64))
    }

    /// Runs all probes on the weights in `model`; `None` after a signal.
    fn measure(&self, model: &Path) -> Result<Option<Scores>> {
        let folder = read_folder(model)?;
        let output = self.folder.join(&folder.sha256()?[..HASH_CHARS]);
        // Cells that started from other weights will not be needed again.
        let stale = fs::list(&self.folder)?.into_iter().filter(|found| *found != output);
        stale.into_iter().try_for_each(|found| fs::remove_folder(&found))?;
        let mut scores = Scores::new();
        for (task, name) in self.tasks.iter().zip(&self.names) {
            let score = self.score(task, &folder, &output)?;
            scores.extend(score.map(|score| (name.clone(), score)));
        }
        for (pairs, name) in self.pairs.iter().zip(&self.names[self.tasks.len()..]) {
            let Some(share) = self.share(pairs, model)? else { return Ok(None) };
            scores.push((name.clone(), share));
        }
        fs::remove_folder(&self.folder)?;
        Ok(Some(scores))
    }
}

impl Probe for Probes<'_> {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn every(&self) -> u64 {
        self.every
    }

    fn scores(&self, model: &Path) -> Result<Option<Scores>> {
        match self.measure(model) {
            Err(e) if matches!(class_of(&e), Class::Interrupted(_)) => Ok(None),
            measured => measured,
        }
    }
}

/// Refuses a task that sets a precision or a longer sequence length than the pretraining run: the run decides
/// these.
fn check(task: &NamedTask, max_seq_length: usize) -> Result<(), Problem> {
    let config = &task.config;
    let length = config.data.sequence_length();
    let (key, message, hint) = if config.precision != PrecisionConfig::default() {
        ("precision", "is that of the run".to_string(), "remove it".to_string())
    } else if task.protocol.is_some() {
        ("protocol", "is for `compare`, not for probes".to_string(), "remove it from the list".to_string())
    } else if length > max_seq_length {
        let message = format!("is {length}, and the model is trained with {max_seq_length} tokens");
        ("data.max_seq_length", message, format!("set it to {max_seq_length} or less"))
    } else {
        return Ok(());
    };
    Err(Problem::usage(message).at(format!("task `{}`: {key}", task.name)).hint(hint))
}

/// Reads the examples of a task once, to find errors in its files.
struct ReadExamples<'a>(&'a NamedTask);

impl FinetunedVisitor for ReadExamples<'_> {
    type Output = Result<()>;

    fn visit<T: FinetuningTask>(self) -> Self::Output {
        Examples::<T>::read(&self.0.config).map(drop)
    }
}

/// Fine-tunes a model on a task with each seed, below `output`. Returns the scores of the seeds that did not
/// diverge.
struct FinetuneSeeds<'a> {
    task: &'a NamedTask,
    folder: &'a PretrainedFolder,
    output: &'a Path,
    with: Equipment<'a>,
}

impl FinetunedVisitor for FinetuneSeeds<'_> {
    type Output = Result<Vec<f64>>;

    fn visit<T: FinetuningTask>(self) -> Self::Output {
        let Self { task, folder, output, with } = self;
        let examples = Examples::<T>::read(&task.config)?;
        let mut scores = Vec::new();
        for &seed in &task.seeds {
            let place = output.join(file_name(&task.name)).join(format!("seed-{seed}"));
            let mut config = task.config.clone();
            config.model.clone_from(&folder.path);
            let cell = Cell::new(task.name.clone(), place, seed, &config);
            let done = cell.run(&examples, folder, with)?;
            record::remove_weights(&cell.folder)?;
            scores.extend(done.record.outcomes.map(|outcomes| outcomes.score(task.metric)));
        }
        Ok(scores)
    }
}
