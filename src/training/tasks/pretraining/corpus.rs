//! The data of a pretraining run: masked rows of the training shards, and fixed rows for evaluation.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use crate::tasks::pretraining::mixes::Mixes;
use crate::tasks::run::{Beginning, Data, Scores};
use crate::tasks::{Loss, Task, Term};
use data::batches::{
    Batch, EvaluationBatches, Frame, HostMemory, Loader, LoaderOptions, Masking, Planner, StepBatches,
};
use data::shards::ShardSet;
use data::tokenizer::Tokenizer;
use model::distributed::World;
use ops::memory;

/// Name of the number of tokens that an evaluation predicted, which is reported next to the scores.
pub const PREDICTED_TOKENS: &str = "predicted_tokens";

/// Training shards with their loader, and the validation set.
pub struct Corpus {
    /// The tokenizer of the shards.
    pub tokenizer: Tokenizer,
    pub(super) train: Arc<ShardSet>,
    pub(super) frame: Frame,
    pub(super) masking: Masking,
    /// Options of the loader; [`Data::start`] sets the first step, the last step and the cursor.
    pub(super) options: LoaderOptions,
    pub(super) loader: Option<Loader>,
    /// Function with which loader threads prepare each batch that they make.
    pub(super) planner: Option<Planner>,
    /// The mix of sources over the steps.
    pub(super) mixes: Mixes,
    pub(super) validation: Validation,
    /// Function that turns the summed losses of an evaluation into scores.
    pub(super) scores: fn(&[Term], &[Loss]) -> Scores,
    pub(super) score_names: &'static [&'static str],
    /// The processes that share steps and evaluations.
    pub(super) world: World,
}

/// The fixed batches of an evaluation.
pub(super) struct Validation {
    pub(super) shards: Arc<ShardSet>,
    pub(super) frame: Frame,
    pub(super) masking: Masking,
    pub(super) rows_per_batch: usize,
    /// Loss of the best model that knows only the frequency of each token.
    pub(super) unigram_loss: f64,
}

impl Data for Corpus {
    fn plan_with(&mut self, planner: Planner) {
        self.planner = Some(planner);
    }

    fn start(&mut self, beginning: Beginning) -> Result<()> {
        let Beginning { cursor, step, total_steps } = beginning;
        let options = LoaderOptions { first_step: step, total_steps, ..self.options.clone() };
        let train = Arc::clone(&self.train);
        let masking = self.masking.clone();
        let memory = Arc::new(HostMemory::planned(self.planner.clone()));
        self.loader = Some(Loader::start_with(memory, train, self.frame, masking, options, cursor)?);
        Ok(())
    }

    fn next_step(&mut self) -> Result<StepBatches> {
        self.loader.as_mut().expect("a run starts its data first").next_step()
    }

    fn give_back(&mut self, step: StepBatches) {
        if let Some(loader) = &mut self.loader {
            loader.give_back(step);
        }
    }

    fn evaluate(&mut self, task: &dyn Task, interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        let Validation { shards, frame, masking, rows_per_batch, .. } = &self.validation;
        let batches = EvaluationBatches::new(shards, *frame, masking.clone(), *rows_per_batch)?;
        Ok(evaluate_with(self.world, task, batches, interrupted)?.map(|losses| self.scored(task, &losses)))
    }

    fn mix(&self, steps_done: u64) -> Vec<(String, f64)> {
        self.mixes.shares_at(steps_done).filter(|_| self.mixes.change()).unwrap_or_default()
    }

    fn score_names(&self) -> Vec<String> {
        self.score_names.iter().map(|name| (*name).to_string()).collect()
    }

    fn finish(&mut self, _output: &Path, _interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        Ok(Some(vec![("unigram_loss".to_string(), self.validation.unigram_loss)]))
    }
}

impl Corpus {
    /// Returns the scores of summed losses, all NaN if there was no batch, and the number of predicted
    /// tokens.
    fn scored(&self, task: &dyn Task, losses: &[Loss]) -> Scores {
        let mut scores: Scores = match losses {
            [] => self.score_names.iter().map(|name| ((*name).to_string(), f64::NAN)).collect(),
            _ => (self.scores)(task.terms(), losses),
        };
        let predicted = losses.first().map_or(0, |masked| masked.count);
        scores.push((PREDICTED_TOKENS.to_string(), predicted as f64));
        scores
    }
}

/// Returns the losses over `batches` without dropout, as [`Task::evaluate`] gives them; `None` if it was
/// interrupted between two batches.
pub fn evaluate(
    task: &dyn Task,
    batches: impl IntoIterator<Item = Result<Batch>>,
    interrupted: &dyn Fn() -> bool,
) -> Result<Option<Vec<Loss>>> {
    evaluate_with(World::ALONE, task, batches, interrupted)
}

/// The losses of a batch as they are sent between processes: for each term the bits of the sum, the number of
/// targets, and the number of right predictions.
type BatchLosses = Vec<(u64, usize, usize)>;

/// As [`evaluate`], with the batches divided among the processes of `world`. All processes get the same
/// losses, which are added up in the order of the batches, independent of the number of processes.
fn evaluate_with(
    world: World,
    task: &dyn Task,
    batches: impl IntoIterator<Item = Result<Batch>>,
    interrupted: &dyn Fn() -> bool,
) -> Result<Option<Vec<Loss>>> {
    let mut own: Vec<BatchLosses> = Vec::new();
    let mut is_cut_off = false;
    let mut most_tokens = 0;
    for (number, batch) in batches.into_iter().enumerate() {
        let batch = batch?;
        if number % world.size != world.rank {
            continue;
        }
        is_cut_off = interrupted();
        if is_cut_off {
            break;
        }
        // Blocks of memory for a small last batch would be allocated in addition to the larger freed ones.
        if batch.num_tokens() < most_tokens / 2 {
            memory::give_back_freed_blocks();
        }
        most_tokens = most_tokens.max(batch.num_tokens());
        let losses = task.evaluate(&batch)?;
        own.push(losses.into_iter().map(|loss| (loss.sum.to_bits(), loss.count, loss.correct)).collect());
    }
    let all: Vec<(bool, Vec<BatchLosses>)> =
        if world.is_shared() { world.gather(&(is_cut_off, own))? } else { vec![(is_cut_off, own)] };
    if all.iter().any(|(is_cut_off, _)| *is_cut_off) {
        return Ok(None);
    }
    let mut totals: Vec<Loss> = Vec::new();
    let rounds = all.iter().map(|(_, own)| own.len()).max().unwrap_or(0);
    let in_order = (0..rounds).flat_map(|round| all.iter().filter_map(move |(_, own)| own.get(round)));
    for losses in in_order {
        totals.resize(losses.len(), Loss::default());
        for (total, &(sum, count, correct)) in totals.iter_mut().zip(losses) {
            *total += Loss { sum: f64::from_bits(sum), count, correct };
        }
    }
    Ok(Some(totals))
}
