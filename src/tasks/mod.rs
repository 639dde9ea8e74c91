//! What a model is trained for: examples + head + loss + score, a folder for each.
//!
//! A [`Task`] turns a batch into losses and gradients; it knows nothing of steps, schedules, checkpoints or
//! sinks. [`run`] is what a task brings along for a whole run, whose skeleton is `train/run.rs`; [`trained`]
//! is what a trained model is used for. A new task is a folder with a line in [`list`] and its name in
//! `config/task.rs`.

pub mod classify;
mod divided;
pub mod embed;
mod examples;
pub mod fill_mask;
pub mod finetuned;
pub mod finite;
pub mod floors;
mod inputs;
pub mod labelled;
pub mod list;
pub mod loss;
pub mod masked_lm;
pub mod minimal_pairs;
pub mod multi_label;
pub mod planned;
pub mod pretraining;
pub mod regression;
pub mod replaced_token_detection;
pub mod run;
pub mod sentence_pairs;
mod shuffled;
mod start;
mod subset;
mod supervised;
mod table;
#[cfg(test)]
mod tests;
pub mod token_classify;
pub mod trained;

use candle_core::Result;
use candle_core::Tensor;

use crate::batches::Batch;
use crate::batches::Planner;
use crate::layers::Gradients;
use crate::layers::Parameters;
use crate::layers::Part;
use crate::layers::context::Pass;

pub use loss::Loss;
pub use loss::PendingLoss;
pub use supervised::Supervised;

/// A part of the loss that has targets of its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Term {
    /// As logs and results name it, where there are several.
    pub name: &'static str,
    /// What its mean is multiplied by.
    pub weight: f64,
}

/// Takes hidden states: the name of the model where a run has several, the part behind which they are.
pub type Seen<'a> = dyn FnMut(&'static str, Part, &Tensor) -> Result<()> + 'a;

/// What the trainer needs of a task.
pub trait Task {
    /// The terms of the loss, which is the sum of `weight x mean over the term's targets`.
    fn terms(&self) -> &[Term] {
        &[Term { name: "loss", weight: 1.0 }]
    }

    /// Targets of `batch`, for each term: known before anything is computed, so that gradients are those of
    /// means over whole steps from the first micro-batch on.
    fn counts(&self, batch: &Batch) -> Vec<usize> {
        vec![batch.num_labels()]
    }

    /// Adds the gradients of `batch` to `gradients`: of each term's *summed* loss, times its entry of
    /// `scales`. The losses that it gives, one a term, are not scaled.
    ///
    /// With `weight / targets of the whole step` as scales, gradients add up to that of the loss; loss
    /// scaling is a further factor, there from the first gradient on. Nothing waits for a GPU here.
    fn accumulate(
        &self,
        batch: &Batch,
        pass: Pass,
        scales: &[f32],
        gradients: &Gradients,
    ) -> Result<Vec<PendingLoss>>;

    /// What can be worked out of a batch before [`Self::accumulate`] takes it, by the thread that makes it:
    /// plans for a GPU. `None` where there is nothing to work out.
    fn planner(&self) -> Option<Planner> {
        None
    }

    /// Begins to copy to a GPU what [`Self::accumulate`] will read of `batch`, beside what is computed there.
    fn send(&self, _batch: &mut Batch) -> Result<()> {
        Ok(())
    }

    /// Shows `seen` the hidden states, `[T, D]`, that the forward pass of [`Self::accumulate`] goes through:
    /// of which model of the run, behind which part of it.
    fn observe(&self, batch: &Batch, pass: Pass, seen: &mut Seen<'_>) -> Result<()>;

    /// Logits at the label positions, `[M, classes]`, without dropout.
    fn logits(&self, batch: &Batch) -> Result<Tensor>;

    /// The losses of `batch`, one a term, without dropout and without gradients. Behind them stands what else
    /// a task counts of its predictions: how many there are, and how many of them are right.
    fn evaluate(&self, batch: &Batch) -> Result<Vec<Loss>>;

    /// The values that training changes.
    fn parameters(&self) -> &Parameters;

    /// Goes on with angles of another base in the layers that attend to all tokens; nothing where positions
    /// are no angles.
    fn set_global_rope_theta(&self, _theta: f64) {}

    /// Floating-point operations of forward and backward of `batch`.
    fn flops(&self, batch: &Batch) -> f64;
}
