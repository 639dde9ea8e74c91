//! A cell: one fine-tuning run of a sweep, a comparison or a probe. It is trained, resumed, or read from its
//! record.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::machine;
use crate::tasks::finetuning_task::{Examples, FinetuningTask};
use crate::tasks::labelled;
use crate::tasks::run::Kind;
use crate::train;
use crate::train::request::Request;
use crate::train::resume::{Start, keep_compute};
use crate::train::signals::stopped_by;
use crate::train::{End, used};
use crate::trials::equipment::Equipment;
use crate::trials::lanes::Job;
use crate::trials::record;
use crate::trials::record::Record;
use base::error::{Class, Problem, class_of};
use base::fs;
use config::FinetuneConfig;
use model::interop::PretrainedFolder;

/// The text after the name of the signal that stopped a grid of cells.
pub(super) const SAVED: &str = "what is done is saved";

/// Longest file name in bytes; a longer one is cut, and a hash keeps it unique.
const MOST_NAME_BYTES: usize = 60;

/// A fine-tuning configuration with one seed and a folder of its own.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The name in messages, which no other cell of the command has.
    pub name: String,
    /// The run folder of this cell (its `run.output_dir`).
    pub folder: PathBuf,
    /// The seed of the new head's weights, the order of examples and dropout.
    pub seed: u64,
    /// The configuration, with this folder and this seed alone.
    pub config: FinetuneConfig,
}

/// A cell that is done.
#[derive(Debug, Clone)]
pub struct Done {
    /// Its scores and outcomes.
    pub record: Record,
    /// Training time in this process; `None` if the cell was complete already.
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
    /// Returns a cell that trains `config` with `seed` in `folder`.
    pub fn new(name: String, folder: PathBuf, seed: u64, config: &FinetuneConfig) -> Self {
        let mut config = config.clone();
        config.seeds = vec![seed];
        // A record must not depend on how many runs shared the machine.
        config.runs_at_once = 0;
        config.run.output_dir.clone_from(&folder);
        Self { name, folder, seed, config }
    }

    /// Returns a note for a dry run about a cell that has begun; an error if it has a record of another
    /// configuration.
    pub fn outlook(&self) -> Result<Option<String>> {
        if let Some(record) = Record::read(&self.folder)? {
            record.agree(&self.folder, &self.config, &record.inputs)?;
            return Ok(Some("complete already".to_string()));
        }
        used::outlook(&Start::Again, &self.folder, &self.config)
    }

    /// Trains this cell, resumes it after an interruption, or reads its record if it is complete. Divergence
    /// is a result, not an error: a sweep has to find out which learning rates are too high.
    pub fn run<T: FinetuningTask>(
        &self,
        examples: &Examples<T>,
        folder: &PretrainedFolder,
        with: Equipment<'_>,
    ) -> Result<Done> {
        let Equipment { machine, progress, signals, .. } = with;
        if let Some(key) = self.config.run.limit() {
            let problem = Problem::usage("limits one run, and several that are compared need the same steps");
            return Err(problem
                .at(key)
                .hint("remove it; the same command with `--dry-run` tells what the runs cost")
                .into());
        }
        let drawn = examples.drawn(&self.config, self.seed);
        let kind = drawn.as_ref().unwrap_or(examples).kind(&self.config, folder);
        let inputs = kind.inputs()?;
        if let Some(record) = Record::read(&self.folder)? {
            record.agree(&self.folder, &self.config, &inputs)?;
            return Ok(Done { record, took: None });
        }
        if let Some(signal) = signals.received() {
            return Err(stopped_by(signal, SAVED).into());
        }
        let request = Request::from_finetune_config(&self.config, self.seed, &Start::Again);
        let began = Instant::now();
        let trained = machine::in_pool(|| train::run::run(kind, &request, machine, progress, signals));
        let config = self.config.clone();
        let record = match trained {
            Ok(outcome) => {
                if let Some(End::Signal(signal)) = outcome.end {
                    return Err(stopped_by(signal, SAVED).into());
                }
                let scores = outcome
                    .results
                    .into_iter()
                    .filter(|(name, value)| {
                        let is_score = name.starts_with("eval_") || name.starts_with("test_");
                        is_score && name != "eval_runtime" && value.is_finite()
                    })
                    .collect();
                let outcomes = Some(outcome.data.outcomes());
                Record { config, inputs, scores, outcomes, test_outcomes: outcome.data.test_outcomes() }
            }
            Err(e) if class_of(&e) == Class::Diverged => {
                progress.warn(&format!("{}: {e:#}", self.name));
                Record { config, inputs, scores: [].into(), outcomes: None, test_outcomes: None }
            }
            Err(e) => return Err(e),
        };
        record.write(&self.folder)?;
        Ok(Done { record, took: Some(began.elapsed()) })
    }
}

/// Replaces `precision.compute: auto` with the number type that the first started cell among `folders` was
/// computed in, so that all cells keep one type even when another machine resumes the command.
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

/// Turns a value or name from outside into the name of one file or folder. Different values get different
/// names.
pub(super) fn file_name(value: &str) -> String {
    let plain: String =
        value.chars().map(|c| if c.is_ascii_alphanumeric() || "+-.".contains(c) { c } else { '_' }).collect();
    let is_a_step = value.chars().all(|c| c == '.');
    if plain == value && !is_a_step && value.len() <= MOST_NAME_BYTES {
        return plain;
    }
    let end: String = plain.chars().rev().take(MOST_NAME_BYTES / 2).collect();
    format!("{}-{}", end.chars().rev().collect::<String>(), &fs::sha256_of(&[value.as_bytes()])[..8])
}

/// Refuses missing training and evaluation files, before anything is trained; the error lists all of them.
pub fn require_files<'a>(configs: impl IntoIterator<Item = &'a FinetuneConfig>) -> Result<()> {
    labelled::require(configs.into_iter().flat_map(|config| {
        let eval = config.data.eval_fraction.is_none().then_some(config.data.eval_file.as_path());
        std::iter::once(config.data.train_file.as_path()).chain(eval).chain(config.data.test_file.as_deref())
    }))
}
