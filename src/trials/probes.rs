//! Probes: what weights that are still being pretrained are worth on tasks.
//!
//! Each probe fine-tunes copies of them, and finds of minimal pairs which sentence is likelier. What an
//! interrupted one has done is kept until the same weights are probed again.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;

use crate::config::EvaluationConfig;
use crate::config::NamedTask;
use crate::config::PrecisionConfig;
use crate::config::PretrainConfig;
use crate::error::Class;
use crate::error::Problem;
use crate::error::class_of;
use crate::fs;
use crate::interop::PretrainedFolder;
use crate::interop::read_folder;
use crate::scores::mean;
use crate::tasks::finetuned::Finetuned;
use crate::tasks::list;
use crate::tasks::list::FinetunedVisitor;
use crate::tasks::minimal_pairs::Likelihood;
use crate::tasks::minimal_pairs::Masking;
use crate::tasks::minimal_pairs::Pair;
use crate::tasks::minimal_pairs::read_pairs;
use crate::tasks::run::Scores;
use crate::telemetry::Progress;
use crate::train::probe::Probe;
use crate::trials::cell::Cell;
use crate::trials::cell::file_name;
use crate::trials::cell::require_files;
use crate::trials::equipment::Equipment;
use crate::trials::record;

/// Where probes work, in the folder of the run.
const FOLDER: &str = "probes";

/// Characters of the hash that tells weights apart.
const HASH_CHARS: usize = 16;

/// Pairs between two looks at signals.
const PAIRS_AT_ONCE: usize = 256;

/// The tasks of a run's probes, and what they are done with.
pub struct Probes<'a> {
    tasks: Vec<NamedTask>,
    pairs: Vec<Vec<Pair>>,
    /// Of the tasks, then of the pairs.
    names: Vec<String>,
    every: u64,
    folder: PathBuf,
    with: Equipment<'a>,
}

impl<'a> Probes<'a> {
    /// The probes of a run, if it has any: `tasks` are those of its `evaluation.probes`. Every file of theirs
    /// is read once, so that a wrong line is found before the first step. `precision` is that of the run.
    pub fn of(
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
            task.config.precision = precision.clone();
            list::finetuned(task.config.goal(), Reading(task))?;
        }
        let stem = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let names: Vec<String> =
            tasks.iter().map(|task| task.name.clone()).chain(minimal_pairs.iter().map(stem)).collect();
        if let Some(twice) = (1..names.len()).find(|&at| names[..at].contains(&names[at])) {
            let message = format!("two probes are called `{}`", names[twice]);
            return Err(Problem::usage(message).at("evaluation").hint("rename one of them").into());
        }
        let pairs = minimal_pairs.iter().map(|path| read_pairs(path)).collect::<Result<_>>()?;
        let folder = config.run.output_dir.join(FOLDER);
        Ok(Some(Self { tasks, pairs, names, every: *every, folder, with }))
    }

    /// The score of one task, mean over its seeds; none where all of them diverged.
    fn score(&self, task: &NamedTask, folder: &PretrainedFolder, output: &Path) -> Result<Option<f64>> {
        // What a fine-tuning run says of itself would drown what the run says.
        let with = Equipment { progress: &Progress::silent(), ..self.with };
        let scores = list::finetuned(task.config.goal(), Probing { task, folder, output, with })?;
        // The mean over seeds of which one was not measured is not measured, either.
        Ok((!scores.is_empty()).then(|| mean(&scores)))
    }

    /// The share of pairs whose right sentence is the likelier one; none when a signal came in.
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

    fn measure(&self, model: &Path) -> Result<Option<Scores>> {
        let folder = read_folder(model)?;
        let output = self.folder.join(&folder.sha256()?[..HASH_CHARS]);
        // What was begun with other weights will not be asked for again.
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

/// Refuses what the run decides for its probes.
fn check(task: &NamedTask, max_seq_length: usize) -> Result<(), Problem> {
    let refuse = |key: &str, message: String, hint: &str| {
        Err(Problem::usage(message).at(format!("task `{}`: {key}", task.name)).hint(hint))
    };
    let config = &task.config;
    if config.precision != PrecisionConfig::default() {
        return refuse("precision", "is that of the run".to_string(), "remove it");
    }
    let length = config.data.sequence_length();
    if length > max_seq_length {
        let message = format!("is {length}, and the model is trained with {max_seq_length} tokens");
        return refuse("data.max_seq_length", message, &format!("set it to {max_seq_length} or less"));
    }
    Ok(())
}

/// Reads the examples of a task.
struct Reading<'a>(&'a NamedTask);

impl FinetunedVisitor for Reading<'_> {
    type Output = Result<()>;

    fn visit<T: Finetuned>(self) -> Self::Output {
        T::read(&self.0.config).map(drop)
    }
}

/// Fine-tunes a model on a task with each of its seeds, in `output`; gives the scores of those seeds that did
/// not diverge.
struct Probing<'a> {
    task: &'a NamedTask,
    folder: &'a PretrainedFolder,
    output: &'a Path,
    with: Equipment<'a>,
}

impl FinetunedVisitor for Probing<'_> {
    type Output = Result<Vec<f64>>;

    fn visit<T: Finetuned>(self) -> Self::Output {
        let Self { task, folder, output, with } = self;
        let examples = T::read(&task.config)?;
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
