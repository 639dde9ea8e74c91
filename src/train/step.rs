//! One optimizer step: forward and backward of every micro-batch, global norm, clipping, update.

use anyhow::Result;

use crate::batches::Batch;
use crate::distributed::World;
use crate::layers::Gradients;
use crate::layers::context::Pass;
use crate::ops::cuda;
use crate::ops::norm;
use crate::ops::update::Clip;
use crate::optim::Optimizer;
use crate::precision::LossScale;
use crate::tasks::Loss;
use crate::tasks::PendingLoss;
use crate::tasks::Task;
use crate::tasks::Term;

/// What a step says of itself.
#[derive(Debug, Clone)]
pub struct StepOutcome {
    /// Losses over all targets of the step, one a term.
    pub losses: Vec<Loss>,
    /// Norm of the mean gradient before clipping; not finite in a step that was skipped.
    pub grad_norm: f64,
    /// Tokens that went through the model.
    pub tokens: usize,
    /// Floating-point operations.
    pub flops: f64,
    /// The factor of the loss in this step; `None` where the loss is not scaled.
    pub loss_scale: Option<f64>,
    /// Why nothing was updated, where that is so.
    pub skipped: Option<Skip>,
}

impl StepOutcome {
    /// The loss of the step: the weighted sum of the means of its terms; `None` without targets, and where a
    /// term is not finite.
    pub fn loss(&self, terms: &[Term]) -> Option<f64> {
        let has_targets = self.losses.iter().any(|loss| loss.count > 0);
        let sum: f64 = terms.iter().zip(&self.losses).map(|(term, loss)| term.weight * loss.mean()).sum();
        (has_targets && sum.is_finite()).then_some(sum)
    }
}

/// Why a step updated nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Skip {
    /// The scaled gradients were out of the range of their type; the next step has a smaller scale.
    Overflow,
    /// The loss or the gradient norm is this, and no scale can mend it.
    NotFinite(&'static str, f64),
}

/// The parts that a step changes, and the rules it follows.
#[derive(Debug)]
pub struct Stepper {
    /// Moments and groups.
    pub optimizer: Optimizer,
    /// Buffer in which gradients accumulate.
    pub gradients: Gradients,
    /// Largest norm of the mean gradient; 0 turns clipping off.
    pub max_grad_norm: f64,
    /// Seed of dropout.
    pub seed: u64,
    /// Scale of the loss; `None` for types that need none.
    pub loss_scale: Option<LossScale>,
    /// The processes that each have a part of the step.
    pub world: World,
}

impl Stepper {
    /// Trains on the micro-batches of step number `step` (from 1). Where loss or norm are not finite, the step
    /// is skipped: parameters and optimizer are as before it.
    pub fn run(&mut self, task: &dyn Task, micro: &[Batch], step: u64, lr: f64) -> Result<StepOutcome> {
        self.run_beside(task, micro, step, lr, || ())
    }

    /// As [`Self::run`]; `meanwhile` is called when a GPU was given all of the step and before it is waited
    /// for.
    pub fn run_beside(
        &mut self,
        task: &dyn Task,
        micro: &[Batch],
        step: u64,
        lr: f64,
        meanwhile: impl FnOnce(),
    ) -> Result<StepOutcome> {
        let loss_scale = self.loss_scale.as_ref().map(LossScale::factor);
        let scale = loss_scale.unwrap_or(1.0);
        // The buffer is to hold the gradient of the means over the targets of the whole step, times the loss
        // scale.
        let terms = task.terms();
        let mut counts = vec![0; terms.len()];
        for batch in micro {
            counts.iter_mut().zip(task.counts(batch)).for_each(|(all, count)| *all += count);
        }
        let counts = self.world.sum(counts).into_iter();
        let scales: Vec<f32> =
            terms.iter().zip(counts).map(|(t, n)| (scale * t.weight / n.max(1) as f64) as f32).collect();
        self.gradients.clear();
        let (mut losses, mut tokens, mut flops) = (Vec::with_capacity(micro.len()), 0, 0.0);
        for (index, batch) in micro.iter().enumerate() {
            let last_micro_batch = index + 1 == micro.len();
            let pass = Pass { last_micro_batch, ..Pass::new(self.seed, step) };
            losses.push(task.accumulate(batch, pass, &scales, &self.gradients)?);
            tokens += batch.num_tokens();
            flops += task.flops(batch);
        }
        let norm = norm::l2(self.gradients.flat()?)?;
        for loss in losses.iter().flatten() {
            loss.poison(&norm)?;
        }
        let clip = Clip { norm: &norm, max_norm: self.max_grad_norm };
        self.optimizer.update(task.parameters(), &self.gradients, clip, lr, 1.0 / scale)?;
        meanwhile();
        // --- from here on the device is waited for: once a step ---
        let losses = summed(&losses)?;
        let grad_norm = cuda::read(&norm)?[0] / scale;
        let skipped = self.judge(&losses, grad_norm);
        if skipped.is_some() {
            self.optimizer.was_skipped();
        }
        Ok(StepOutcome { losses, grad_norm, tokens, flops, loss_scale, skipped })
    }

    /// Whether the step was skipped, and why; the loss scale follows.
    fn judge(&mut self, losses: &[Loss], grad_norm: f64) -> Option<Skip> {
        if let Some(loss) = losses.iter().find(|loss| !loss.sum.is_finite()) {
            return Some(Skip::NotFinite("loss", loss.mean()));
        }
        let loss_scale = self.loss_scale.as_mut();
        if grad_norm.is_finite() {
            loss_scale.into_iter().for_each(LossScale::succeeded);
            return None;
        }
        let may_be_mended = loss_scale.is_some_and(LossScale::overflowed);
        Some(if may_be_mended { Skip::Overflow } else { Skip::NotFinite("gradient norm", grad_norm) })
    }
}

/// The losses of all micro-batches, one a term.
fn summed(losses: &[Vec<PendingLoss>]) -> Result<Vec<Loss>> {
    let mut sums = vec![Loss::default(); losses.first().map_or(0, Vec::len)];
    for losses in losses {
        for (sum, loss) in sums.iter_mut().zip(losses) {
            *sum += loss.read()?;
        }
    }
    Ok(sums)
}
