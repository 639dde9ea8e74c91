//! The tasks that a model is trained for, a folder for each: examples, head, loss and scores.
//!
//! A [`Task`] turns a batch into losses and gradients; it does not know about steps, schedules, checkpoints
//! or sinks. [`run`] defines what a task adds to a whole run, whose skeleton is `train/run.rs`; [`trained`]
//! is the interface of a trained model. A new task of fine-tuning is a
//! [`FinetuningTask`](finetuning_task::FinetuningTask) with a line in [`list`] and its name in
//! `config/task.rs`.

pub mod classify;
mod divided;
pub mod embed;
pub mod examples;
pub mod fill_mask;
pub mod finetuning;
pub mod finetuning_task;
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
pub mod sentences;
pub mod sequence;
mod shuffled;
mod start;
mod subset;
mod supervised;
mod table;
mod taught;
#[cfg(test)]
mod tests;
pub mod token_classify;
pub mod trained;

use candle_core::{Result, Tensor};

use data::batches::{Batch, Planner};
use model::layers::context::Pass;
use model::layers::{Gradients, Parameters, Part};

pub use loss::{Loss, PendingLoss};
pub use supervised::Supervised;

/// A part of the loss that has its own targets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Term {
    /// Name in logs and results, used if the loss has several terms.
    pub name: &'static str,
    /// Factor of the term's mean in the loss.
    pub weight: f64,
}

/// Called with (name of the model if a run has several, part of the model, output of that part `[T, D]`).
pub type Seen<'a> = dyn FnMut(&'static str, Part, &Tensor) -> Result<()> + 'a;

/// The interface through which the trainer trains a task.
pub trait Task {
    /// Returns the terms of the loss, which is the sum of `weight x mean over the term's targets`.
    fn terms(&self) -> &[Term] {
        &[Term { name: "loss", weight: 1.0 }]
    }

    /// Returns the number of targets of `batch` for each term. It is known before the forward pass, so that
    /// gradients are those of means over whole steps from the first micro-batch on.
    fn counts(&self, batch: &Batch) -> Vec<usize> {
        vec![batch.num_labels()]
    }

    /// Adds the gradients of `batch` to `gradients`: for each term the gradient of its *summed* loss, times
    /// its entry of `scales`. The returned losses, one per term, are not scaled.
    ///
    /// With `weight / targets of the whole step` as scales, the gradients of all micro-batches add up to that
    /// of the loss. Loss scaling is a further factor, included from the first gradient on. Does not wait for
    /// the GPU.
    fn accumulate(
        &self,
        batch: &Batch,
        pass: Pass,
        scales: &[f32],
        gradients: &Gradients,
    ) -> Result<Vec<PendingLoss>>;

    /// Returns a function that prepares a batch for [`Self::accumulate`] on the loader thread that makes the
    /// batch: plans for the kernels of a GPU. `None` if there is nothing to prepare.
    fn planner(&self) -> Option<Planner> {
        None
    }

    /// Starts to copy the arrays of `batch` that [`Self::accumulate`] reads to the GPU, in parallel with the
    /// computation there.
    fn send(&self, _batch: &mut Batch) -> Result<()> {
        Ok(())
    }

    /// Calls `seen` with the hidden states, `[T, D]`, after each part of each model in the forward pass of
    /// [`Self::accumulate`].
    fn observe(&self, batch: &Batch, pass: Pass, seen: &mut Seen<'_>) -> Result<()>;

    /// Logits at the label positions, `[M, classes]`, without dropout.
    fn logits(&self, batch: &Batch) -> Result<Tensor>;

    /// Returns the losses of `batch`, one per term, without dropout and without gradients. After them a task
    /// may add further counts of its predictions: how many there are, and how many of them are right.
    fn evaluate(&self, batch: &Batch) -> Result<Vec<Loss>>;

    /// Returns the parameters that are trained.
    fn parameters(&self) -> &Parameters;

    /// Sets the RoPE base of the layers with global attention. Does nothing in a model without RoPE.
    fn set_global_rope_theta(&self, _theta: f64) {}

    /// Returns the floating-point operations of the forward and backward pass of `batch`.
    fn flops(&self, batch: &Batch) -> f64;
}
