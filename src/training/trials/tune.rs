//! A tuning: finds the best of several settings by successive halving. All candidates are trained for some
//! steps, the best of them continue from their checkpoints.
//!
//! All candidates have the same number of steps and the same schedule, compressed if the budget does not
//! suffice for the steps of the configuration, and are compared at the same step of it. The number is chosen
//! once, from the measured speed of a candidate, and kept in `tune.json`: a tuning may be stopped at any
//! moment, and the same command resumes it and writes the same table.

mod record;
mod rungs;
mod speed;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::train::signals::stopped_by;
use crate::train::trial::{Pause, Trial};
use crate::train::{End, used};
use crate::trials::cell::{SAVED, file_name};
use crate::trials::equipment::Equipment;
use crate::trials::grid_folder;
use crate::trials::grid_folder::Grid;
use crate::trials::record::remove_weights;
use crate::trials::summary::{short_names, value_of};
use crate::trials::tune::record::{Entry, Measured, RungRecord, TUNE_JSON, TuneRecord};
use crate::trials::tune::rungs::{Rung, Speed, rungs, whole_runs};
use crate::trials::tune::speed::speed_of;
use base::error::{Class, Problem, class_of};
use base::fs;
use base::fs::FolderLock;
use base::pages::table::Table;
use base::quantity::{format_count, format_span};
use base::scores::Better;
use config::{FinetuneConfig, PrecisionConfig, PretrainConfig, RunSection, TrainingConfig, Tuning, saved};

/// Folder of the run that measures the speed, in the folder of the tuning. It is removed afterwards.
const SPEED: &str = "speed";

/// The sections of a configuration that a tuning changes.
pub struct Sections<'a> {
    /// Folder and limits.
    pub run: &'a mut RunSection,
    /// Steps and evaluations.
    pub training: &'a mut TrainingConfig,
    /// Number types.
    pub precision: &'a mut PrecisionConfig,
}

/// A configuration of one of the commands that train.
pub trait Tunable: Clone + Serialize + DeserializeOwned {
    /// The sections that a tuning changes.
    fn sections(&mut self) -> Sections<'_>;
}

impl Tunable for PretrainConfig {
    fn sections(&mut self) -> Sections<'_> {
        Sections { run: &mut self.run, training: &mut self.training, precision: &mut self.precision }
    }
}

impl Tunable for FinetuneConfig {
    fn sections(&mut self) -> Sections<'_> {
        Sections { run: &mut self.run, training: &mut self.training, precision: &mut self.precision }
    }
}

/// Trains one candidate in its folder, from its newest checkpoint on.
pub trait Trainee<C> {
    /// Trains `config` until the pause of `trial`.
    fn train(&self, config: &C, trial: Trial, with: Equipment<'_>) -> Result<Trained>;
}

/// The result of a sitting of a candidate.
pub struct Trained {
    /// The reason why it ended; `None` if the run was complete already.
    pub end: Option<End>,
    /// Steps done.
    pub step: u64,
    /// Steps that the configuration plans.
    pub planned_steps: u64,
    /// Results by the names of transformers' Trainer.
    pub results: BTreeMap<String, f64>,
}

/// A candidate with the folder of its run.
#[derive(Debug, Clone)]
pub struct Entrant<C> {
    /// The values of the varied keys, for messages.
    pub name: String,
    /// The run folder (its `run.output_dir`).
    pub folder: PathBuf,
    /// The values of the varied keys.
    values: Vec<String>,
    /// The configuration.
    pub config: C,
}

/// Returns the candidates with a folder for each in `output`. They evaluate at the end of each rung only, and
/// nothing but the tuning ends them early.
pub fn entrants<C: Tunable>(tuning: &Tuning<C>, output: &Path) -> Vec<Entrant<C>> {
    let names = short_names(&tuning.keys);
    let entrant = tuning.candidates.iter().map(|candidate| {
        let pairs: Vec<(&&str, &String)> = names.iter().zip(&candidate.values).collect();
        let name: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let folder: Vec<String> =
            pairs.iter().map(|(name, value)| format!("{name}={}", file_name(value))).collect();
        let folder = output.join(folder.join(","));
        let mut config = candidate.loaded.config.clone();
        let Sections { run, training, .. } = config.sections();
        run.output_dir.clone_from(&folder);
        training.max_train_time = None;
        training.eval_steps = 0;
        training.early_stopping_patience = None;
        training.load_best_model_at_end = false;
        Entrant { name: name.join(", "), folder, values: candidate.values.clone(), config }
    });
    entrant.collect()
}

/// A tuning and what it is run with.
pub struct Tune<'a, C> {
    /// The configuration without the values of candidates.
    pub base: &'a C,
    /// Dotted paths of the varied keys.
    pub keys: &'a [String],
    /// The candidates.
    pub entrants: &'a [Entrant<C>],
    /// The time that all rungs together may take.
    pub budget: Duration,
    /// The folder of all runs and of the table.
    pub output: &'a Path,
    /// The score that candidates are ranked by, by the name of transformers' Trainer.
    pub metric: &'a str,
}

/// The result of a tuning.
#[derive(Debug, Clone)]
pub struct Tuned {
    /// A row for each candidate.
    pub table: Table,
    /// The index of the best candidate; `None` if none has a score.
    pub best: Option<usize>,
    /// The score of the best candidate, the steps that it was trained for, those that the configuration
    /// plans, and the number of candidates with the same score, as text.
    pub summary: String,
    /// True if the best candidate was trained for all steps of its configuration.
    pub is_whole: bool,
    /// True if training diverged with every candidate.
    pub all_diverged: bool,
}

/// The state of a tuning, for reports.
pub struct Overview {
    /// A row for each candidate, with its scores at each rung.
    pub table: Table,
    /// The score that candidates are ranked by.
    pub metric: String,
    /// Names of the run folders, in the order of the rows.
    pub folders: Vec<String>,
    /// Names of the run folders of candidates that dropped out.
    pub dropped_out: Vec<String>,
}

/// Reads the tuning in `folder`, if there is one.
pub fn overview(folder: &Path) -> Result<Option<Overview>> {
    Ok(TuneRecord::<Value>::read(folder)?.map(|record| Overview {
        table: record.table(),
        dropped_out: record
            .candidates
            .iter()
            .filter(|candidate| candidate.out_at.is_some())
            .map(|candidate| candidate.folder.clone())
            .collect(),
        folders: record.candidates.into_iter().map(|candidate| candidate.folder).collect(),
        metric: record.metric,
    }))
}

/// Refuses the folder of another command.
fn refuse_used(output: &Path) -> Result<()> {
    if fs::exists(&output.join(TUNE_JSON)) {
        return Ok(());
    }
    used::refuse_for_many(output, &[TUNE_JSON])?;
    grid_folder::refuse_used(output, Grid::Tuning)
}

/// Refuses an ordinary run in the folder of a command that trains many runs: their table would be hidden by
/// its files. A run that has begun there may continue.
pub fn refuse_run(output: &Path) -> Result<()> {
    if used::has_run(output)? { Ok(()) } else { grid_folder::refuse_others(output, None) }
}

impl<C: Tunable> Tune<'_, C> {
    /// Describes for a dry run what would be done.
    pub fn outlook(&self) -> Result<Vec<String>> {
        refuse_used(self.output)?;
        let rungs = rungs(self.entrants.len());
        let names: Vec<&str> = self.entrants.iter().map(|entrant| entrant.name.as_str()).collect();
        let known = TuneRecord::read(self.output)?;
        let time = match &known {
            None => format!(
                "at most {}, less if the whole runs take less; the speed is measured first",
                format_span(self.budget.as_secs_f64())
            ),
            Some(record) => {
                record.agree(self.output, &self.record(&rungs, record.planned_steps, 1))?;
                let left = record.steps_left();
                if left == 0 {
                    "complete already".to_string()
                } else {
                    format!("begun already, {} steps are left", format_count(left))
                }
            }
        };
        let steps = match &known {
            Some(record) => steps_text(&record.rungs, record.planned_steps),
            None => parts_text(&rungs),
        };
        Ok(vec![
            "dry run: nothing is written".to_string(),
            row("candidates", &format!("{}: {}", names.len(), names.join("; "))),
            row("rungs", &steps),
            row("score", self.metric),
            row("time", &time),
            row("output", &self.output.display().to_string()),
        ])
    }

    /// Trains the candidates, or what is left of them after an interruption.
    pub fn run(&self, trainee: &impl Trainee<C>, with: Equipment<'_>) -> Result<Tuned> {
        refuse_used(self.output)?;
        let is_new = !fs::exists(self.output);
        let lock = FolderLock::take(self.output)?;
        let record = match TuneRecord::read(self.output)? {
            Some(record) => self.continued(record, with),
            None => self.planned(trainee, with),
        };
        let mut record = match record {
            Ok(record) => record,
            Err(error) => {
                // The folder of a refused tuning is removed, unless it has files.
                if is_new {
                    lock.discard()?;
                }
                return Err(error);
            }
        };
        let mut pace = Pace::default();
        for rung in 0..record.rungs.len() {
            let entrants = record.entrants(rung);
            for (place, &at) in entrants.iter().enumerate() {
                if record.candidates[at].scores.len() > rung {
                    continue;
                }
                let left_before = record.steps_left();
                let began = Instant::now();
                let score = self.train(&self.entrants[at], &record, rung, trainee, with)?;
                let text = format!("{} {} at step {}", self.metric, score.text(), score.step);
                record.candidates[at].scores.push(score);
                record.write(self.output)?;
                pace.add(began.elapsed(), left_before - record.steps_left());
                with.progress.note(&format!(
                    "rung {} of {}, candidate {} of {}, {}: {text}{}",
                    rung + 1,
                    record.rungs.len(),
                    place + 1,
                    entrants.len(),
                    self.entrants[at].name,
                    pace.left(record.steps_left())
                ));
            }
            let kept = record.entrants(rung + 1);
            for at in entrants.into_iter().filter(|at| !kept.contains(at)) {
                remove_weights(&self.entrants[at].folder)?;
                record.candidates[at].out_at = Some(rung + 1);
            }
        }
        let best = record.winner();
        record.best = best.map(|at| record.candidates[at].folder.clone());
        record.write(self.output)?;
        Ok(self.tuned(&record, best))
    }

    fn tuned(&self, record: &TuneRecord<C>, best: Option<usize>) -> Tuned {
        let last = best.and_then(|at| record.candidates[at].scores.last());
        let is_whole = record.rungs.last().is_some_and(|rung| rung.steps == record.planned_steps);
        let summary = last.map_or(String::new(), |score| {
            let steps = record.rungs.last().map_or(0, |rung| rung.steps);
            let planned = if is_whole { String::new() } else { format!(" of {}", record.planned_steps) };
            let tie = record.tie().map_or(String::new(), |tie| format!(", {tie}"));
            format!("{} {} after {steps}{planned} steps{tie}", self.metric, score.text())
        });
        let mut last_scores = record.candidates.iter().map(|candidate| candidate.scores.last());
        let all_diverged = last_scores.all(|score| score.is_some_and(|score| score.diverged));
        Tuned { table: record.table(), best, summary, is_whole, all_diverged }
    }

    /// Trains a candidate for a rung. Divergence is a result, not an error.
    fn train(
        &self,
        entrant: &Entrant<C>,
        record: &TuneRecord<C>,
        rung: usize,
        trainee: &impl Trainee<C>,
        with: Equipment<'_>,
    ) -> Result<Measured> {
        let RungRecord { steps, part, .. } = record.rungs[rung];
        let whole = record.rungs.last().map_or(steps, |last| last.steps);
        let trial = Trial { steps: whole, of: record.planned_steps, pause: Pause::AfterPart(part) };
        if let Some(signal) = with.signals.received() {
            return Err(stopped_by(signal, SAVED).into());
        }
        let progress = with.progress.labelled(&entrant.name);
        match trainee.train(&entrant.config, trial, Equipment { progress: &progress, ..with }) {
            Ok(Trained { end: Some(End::Signal(signal)), .. }) => Err(stopped_by(signal, SAVED).into()),
            Ok(trained) => {
                let score = trained.results.get(self.metric).copied().filter(|score| score.is_finite());
                Ok(Measured { step: trained.step, score, diverged: false })
            }
            Err(e) if class_of(&e) == Class::Diverged => {
                with.progress.warn(&format!("{}: {e:#}", entrant.name));
                Ok(Measured { step: steps, score: None, diverged: true })
            }
            Err(e) => Err(e),
        }
    }

    /// Returns the record of an earlier sitting, if it is of the same tuning.
    fn continued(&self, record: TuneRecord<C>, with: Equipment<'_>) -> Result<TuneRecord<C>> {
        record.agree(self.output, &self.record(&rungs(self.entrants.len()), record.planned_steps, 1))?;
        let budget = self.budget.as_secs_f64();
        if (record.budget_seconds - budget).abs() > f64::EPSILON {
            let began = format_span(record.budget_seconds);
            with.progress.note(&format!("note: the rungs stay those of the first start, with {began}"));
        }
        let text = steps_text(&record.rungs, record.planned_steps);
        with.progress.note(&format!("continuing: {text}"));
        Ok(record)
    }

    /// Measures the speed, chooses the steps and writes them down.
    fn planned(&self, trainee: &impl Trainee<C>, with: Equipment<'_>) -> Result<TuneRecord<C>> {
        let began = Instant::now();
        let scratch = self.output.join(SPEED);
        fs::remove_folder(&scratch)?;
        let speed = self.measured(&scratch, trainee, with)?;
        fs::remove_folder(&scratch)?;
        let rungs = rungs(self.entrants.len());
        let budget = self.budget.as_secs_f64();
        let steps = speed.affordable_steps(&rungs, budget - began.elapsed().as_secs_f64());
        let fewest = rungs.first().map_or(1, |rung| rung.part).min(speed.planned_steps);
        if steps < fewest {
            let needed = speed.seconds(&rungs, fewest);
            let message = format!(
                "does not suffice: {} candidates take about {} even with {fewest} steps each",
                self.entrants.len(),
                format_span(needed)
            );
            let hint = "give a larger one, or compare fewer candidates (`--settings`)";
            return Err(Problem::usage(message).at("--budget").hint(hint).into());
        }
        let record = self.record(&rungs, speed.planned_steps, steps);
        self.refuse_causal(&record.rungs)?;
        record.write(self.output)?;
        let text = steps_text(&record.rungs, record.planned_steps);
        with.progress.note(&format!("{text}; about {}", format_span(speed.seconds(&rungs, steps))));
        Ok(record)
    }

    /// Refuses rungs that end in a causal phase: the model has not learnt to predict masked tokens there, so
    /// their loss says nothing about the candidates.
    fn refuse_causal(&self, rungs: &[RungRecord]) -> Result<()> {
        let causal =
            self.entrants.iter().map(|entrant| entrant.config.clone().sections().training.causal_steps());
        let causal_steps = causal.max().unwrap_or(0);
        let Some(rung) = rungs.iter().find(|rung| rung.steps <= causal_steps) else { return Ok(()) };
        let steps = rung.steps;
        let message = format!(
            "a rung ends at step {steps}, in a causal phase (until step {causal_steps}), and candidates are ranked \
             by masked tokens"
        );
        let hint = "give a larger budget, compare fewer candidates, or shorten the causal phases";
        Err(Problem::usage(message).at("training.phases").hint(hint).into())
    }

    /// Trains the first candidate that does not diverge for some steps, twice: a resume shows what it takes.
    fn measured(&self, scratch: &Path, trainee: &impl Trainee<C>, with: Equipment<'_>) -> Result<Speed> {
        with.progress.note("measuring the speed of a candidate");
        let mut last = Err(Problem::new("there is no candidate").into());
        for entrant in self.entrants {
            let mut config = entrant.config.clone();
            config.sections().run.output_dir = scratch.to_path_buf();
            fs::remove_folder(scratch)?;
            last = speed_of(&config, self.budget, trainee, with);
            if !last.as_ref().is_err_and(|e| class_of(e) == Class::Diverged) {
                break;
            }
        }
        last
    }

    /// The record of a tuning that has not begun.
    fn record(&self, rungs: &[Rung], planned_steps: u64, steps: u64) -> TuneRecord<C> {
        let rung = rungs.iter().map(|&Rung { candidates, part }| RungRecord {
            candidates,
            steps: (steps / part).max(1),
            part,
        });
        let candidates = self.entrants.iter().map(|entrant| {
            let config = saved(&entrant.config);
            let setting = self.keys.iter().zip(&entrant.values).map(|(key, text)| {
                let value = value_of(&config, key).cloned();
                (key.clone(), value.unwrap_or_else(|| text.as_str().into()))
            });
            let folder = entrant.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Entry { folder, setting: setting.collect(), scores: Vec::new(), out_at: None }
        });
        TuneRecord {
            metric: self.metric.to_string(),
            better: Better::of(self.metric),
            budget_seconds: self.budget.as_secs_f64(),
            planned_steps,
            rungs: rung.collect(),
            candidates: candidates.collect(),
            best: None,
            config: self.base.clone(),
        }
    }
}

/// A line of a dry run.
fn row(name: &str, text: &str) -> String {
    format!("  {name:20} {text}")
}

/// The time and the steps of the candidates that were trained in this process.
#[derive(Default)]
struct Pace {
    seconds: f64,
    steps: u64,
}

impl Pace {
    fn add(&mut self, took: Duration, steps: u64) {
        self.seconds += took.as_secs_f64();
        self.steps += steps;
    }

    /// The end of a note: the time that `steps` more steps will take.
    fn left(&self, steps: u64) -> String {
        if steps == 0 || self.steps == 0 {
            return String::new();
        }
        format!("; about {} left", format_span(self.seconds / self.steps as f64 * steps as f64))
    }
}

/// Describes the rungs by their steps.
fn steps_text(rungs: &[RungRecord], planned_steps: u64) -> String {
    let described = rungs.iter().map(|RungRecord { candidates, steps, .. }| (*candidates, steps.to_string()));
    let last = rungs.last().map_or(0, |rung| rung.steps);
    let whole = if last == planned_steps {
        "all steps of the configuration".to_string()
    } else {
        format!("the configuration has {planned_steps} steps, to which the schedule is compressed")
    };
    format!("{} ({whole})", described_rungs(described))
}

/// Describes the rungs before their steps are known.
fn parts_text(rungs: &[Rung]) -> String {
    let described = rungs.iter().map(|&Rung { candidates, part }| {
        (candidates, if part == 1 { "the end".to_string() } else { format!("1/{part}") })
    });
    format!("{}: the steps of {:.1} whole runs", described_rungs(described), whole_runs(rungs))
}

fn described_rungs(rungs: impl Iterator<Item = (usize, String)>) -> String {
    let texts = rungs.enumerate().map(|(at, (candidates, until))| {
        let verb = if at == 0 { "candidates are trained to" } else { "continue to" };
        let steps = if until.parse::<u64>().is_ok() { "step " } else { "" };
        format!("{candidates} {verb} {steps}{until}")
    });
    texts.collect::<Vec<String>>().join(", ")
}
