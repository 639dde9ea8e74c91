//! What a model is trained for: examples + head + loss + score.
//!
//! A task turns a batch into a loss and gradients; it knows nothing of steps, schedules, files of checkpoints
//! or sinks.

pub mod classify;
pub mod fill_mask;
mod inputs;
pub mod mlm;
pub mod pretrained;
mod supervised;
#[cfg(test)]
mod tests;

use candle_core::Result;
use candle_core::Tensor;

use crate::batches::Batch;
use crate::layers::Gradients;
use crate::layers::Parameters;
use crate::layers::context::DropoutSeed;
use crate::ops::cross_entropy::Entropy;
use crate::ops::cross_entropy::Totals;
use crate::ops::norm;

/// Losses of a batch, summed: means are taken over the *global* count, once, by whoever adds the batches up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Loss {
    /// Sum of the losses of all targets, in nats.
    pub sum: f64,
    /// Number of targets.
    pub count: usize,
    /// Targets whose best-scored class is right.
    pub correct: usize,
}

impl Loss {
    /// Mean loss of a target; 0 without targets.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    /// Share of right targets; 0 without targets.
    pub fn accuracy(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.correct as f64 / self.count as f64 }
    }
}

/// A loss that may still be under way on the device.
#[derive(Debug, Clone, Default)]
pub struct PendingLoss {
    /// As in [`Entropy`]; none for a batch without targets.
    totals: Option<Tensor>,
    count: usize,
}

impl PendingLoss {
    /// The loss of `count` targets.
    pub fn of(entropy: Entropy, count: usize) -> Self {
        Self { totals: Some(entropy.totals), count }
    }

    /// Makes `norm` NaN unless this loss is finite, without waiting for either.
    pub fn poison(&self, norm: &Tensor) -> Result<()> {
        self.totals.as_ref().map_or(Ok(()), |totals| norm::poison(norm, totals))
    }

    /// The loss; waits for the device.
    pub fn read(&self) -> Result<Loss> {
        let Some(totals) = &self.totals else { return Ok(Loss::default()) };
        let Totals { loss_sum, correct } = Totals::read(totals)?;
        Ok(Loss { sum: loss_sum, count: self.count, correct })
    }
}

impl std::ops::AddAssign for Loss {
    fn add_assign(&mut self, other: Self) {
        self.sum += other.sum;
        self.count += other.count;
        self.correct += other.correct;
    }
}

/// What the trainer needs of a task.
pub trait Task {
    /// Adds `scale` times the gradient of the *summed* loss of `batch` to `gradients`. The loss that it gives
    /// is not scaled.
    ///
    /// With one over the count of targets of the whole step as `scale`, gradients add up to that of the mean
    /// loss; loss scaling is a further factor, there from the first gradient on. Nothing waits for a GPU
    /// here.
    fn accumulate(
        &self,
        batch: &Batch,
        dropout: DropoutSeed,
        scale: f32,
        gradients: &Gradients,
    ) -> Result<PendingLoss>;

    /// Logits at the label positions, `[M, classes]`, without dropout.
    fn logits(&self, batch: &Batch) -> Result<Tensor>;

    /// The loss of `batch` without dropout and without gradients.
    fn evaluate(&self, batch: &Batch) -> Result<Loss>;

    /// The values that training changes.
    fn parameters(&self) -> &Parameters;

    /// Floating-point operations of forward and backward of `batch`.
    fn flops(&self, batch: &Batch) -> f64;
}
