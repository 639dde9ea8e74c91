//! One run of many: trained, resumed, or taken from its record.

use std::path::PathBuf;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;

use crate::config::FinetuneConfig;
use crate::error::Class;
use crate::error::Problem;
use crate::error::class_of;
use crate::fs;
use crate::interop::PretrainedFolder;
use crate::machine;
use crate::tasks::finetuned::Finetuned;
use crate::tasks::labelled;
use crate::tasks::run::Kind;
use crate::train;
use crate::train::End;
use crate::train::resume::Start;
use crate::train::resume::keep_compute;
use crate::train::run::Request;
use crate::train::signals::stopped_by;
use crate::trials::equipment::Equipment;
use crate::trials::lanes::Job;
use crate::trials::record;
use crate::trials::record::Record;

/// What a stop leaves of a grid.
const SAVED: &str = "what is done is saved";

/// Longer names are told apart by a hash.
const MOST_NAME_BYTES: usize = 60;

/// A configuration with one seed and one folder.
#[derive(Debug, Clone)]
pub struct Cell {
    /// What tells it from the others, for people.
    pub name: String,
    /// Where it is trained.
    pub folder: PathBuf,
    /// The seed of its head, its order and its dropout.
    pub seed: u64,
    /// All else.
    pub config: FinetuneConfig,
}

/// A cell that is done.
#[derive(Debug, Clone)]
pub struct Done {
    /// What it came to.
    pub record: Record,
    /// How long it was trained in this process; none where it was complete already.
    pub took: Option<Duration>,
}

impl Job for Cell {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn is_done(&self) -> bool {
        record::exists(&self.folder)
    }
}

impl Cell {
    /// A cell of `config` in `folder`.
    pub fn new(name: String, folder: PathBuf, seed: u64, config: &FinetuneConfig) -> Self {
        let mut config = config.clone();
        config.seeds = vec![seed];
        // A record tells nothing of what stood beside its run.
        config.runs_at_once = 0;
        config.run.output_dir.clone_from(&folder);
        Self { name, folder, seed, config }
    }

    /// Trains it, goes on where it was interrupted, or takes its record. Training that diverges is a result:
    /// a rate that is too high is what a sweep is to find out.
    pub fn run<T: Finetuned>(
        &self,
        examples: &T,
        folder: &PretrainedFolder,
        with: Equipment<'_>,
    ) -> Result<Done> {
        let Equipment { machine, progress, signals, .. } = with;
        if let Some(key) = self.config.run.limit() {
            let problem = Problem::usage("limits one run, and several that are compared need the same steps");
            return Err(problem.at(key).hint("remove it; `mlmtrain plan` tells what a run costs").into());
        }
        let kind = examples.kind(&self.config, folder);
        let inputs = kind.inputs()?;
        if let Some(record) = Record::read(&self.folder)? {
            record.agree(&self.folder, &self.config, &inputs)?;
            return Ok(Done { record, took: None });
        }
        if let Some(signal) = signals.received() {
            return Err(stopped_by(signal, SAVED).into());
        }
        let request = Request {
            config: &self.config,
            run: &self.config.run,
            training: &self.config.training,
            precision: &self.config.precision,
            max_seq_length: self.config.data.sequence_length(),
            output: &self.folder,
            seed: self.seed,
            start: &Start::Again,
            probe: None,
            loss_band: None,
            parent: None,
        };
        let began = Instant::now();
        let trained = machine::in_pool(|| train::run::run(kind, &request, machine, progress, signals));
        let config = self.config.clone();
        let record = match trained {
            Ok(outcome) => {
                if let Some(End::Signal(signal)) = outcome.end {
                    return Err(stopped_by(signal, SAVED).into());
                }
                let is_score = |(name, value): &(String, f64)| {
                    name.starts_with("eval_") && name != "eval_runtime" && value.is_finite()
                };
                let scores = outcome.results.into_iter().filter(is_score).collect();
                Record { config, inputs, scores, outcomes: Some(examples.outcomes(&outcome.data)) }
            }
            Err(e) if class_of(&e) == Class::Diverged => {
                progress.warn(&format!("{}: {e:#}", self.name));
                Record { config, inputs, scores: [].into(), outcomes: None }
            }
            Err(e) => return Err(e),
        };
        record.write(&self.folder)?;
        Ok(Done { record, took: Some(began.elapsed()) })
    }
}

/// `precision.compute: auto` becomes the type that these cells were computed in, if one has begun: all cells
/// keep one type on whatever machine they go on.
pub fn keep_type(config: &mut FinetuneConfig, folders: impl IntoIterator<Item = PathBuf>) -> Result<()> {
    for folder in folders {
        if config.precision.compute.known().is_some() {
            return Ok(());
        }
        match Record::read(&folder)? {
            Some(record) => config.precision.compute = record.config.precision.compute,
            None => keep_compute(&mut config.precision, &Start::Auto, [folder])?,
        }
    }
    Ok(())
}

/// A value or a name from outside as the name of one file or folder; two never have the same one.
pub(super) fn file_name(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let plain: String = value.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    let is_a_step = value.chars().all(|c| c == '.');
    if plain == value && !is_a_step && value.len() <= MOST_NAME_BYTES {
        return plain;
    }
    let end: String = plain.chars().rev().take(MOST_NAME_BYTES / 2).collect();
    format!("{}-{}", end.chars().rev().collect::<String>(), &fs::sha256_of(&[value.as_bytes()])[..8])
}

/// Names all files of examples that are missing, before anything is trained.
pub fn require_files<'a>(configs: impl IntoIterator<Item = &'a FinetuneConfig>) -> Result<()> {
    let files = |config: &'a FinetuneConfig| {
        let eval = config.data.eval_fraction.is_none().then_some(config.data.eval_file.as_path());
        std::iter::once(config.data.train_file.as_path()).chain(eval)
    };
    labelled::require(configs.into_iter().flat_map(files))
}
