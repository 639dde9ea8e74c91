//! One optimizer step: forward and backward of every micro-batch, global norm, clipping, update.

use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;
use candle_core::Device;

use crate::batches::Batch;
use crate::distributed::Sums;
use crate::distributed::World;
use crate::distributed::micro_batches_per_leaf;
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
    /// The loss of the step: the weighted sum of the means of its terms; `None` where a term has no targets or
    /// is not finite.
    pub fn loss(&self, terms: &[Term]) -> Option<f64> {
        let sum: f64 = terms.iter().zip(&self.losses).map(|(term, loss)| term.weight * loss.mean()).sum();
        (!terms.is_empty() && sum.is_finite()).then_some(sum)
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

/// The micro-batches that this process computes of a step.
#[derive(Clone, Copy)]
pub struct Share<'a> {
    /// Micro-batches of this process.
    pub micro: &'a [Batch],
    /// Number of micro-batches of all processes.
    pub micro_batches: usize,
    /// Returns true if the step is to be given up; asked before each micro-batch but the first. Only for a process
    /// that trains alone: others would wait for its gradients.
    pub is_interrupted: &'a dyn Fn() -> bool,
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
    /// Their sums of gradients, where these travel while they are computed.
    pub sums: Option<Arc<Sums>>,
}

impl Stepper {
    /// Trains in one process on the micro-batches of step number `step` (from 1). Where loss or norm are not
    /// finite, the step is skipped: parameters and optimizer are as before it.
    pub fn run(&mut self, task: &dyn Task, micro: &[Batch], step: u64, lr: f64) -> Result<StepOutcome> {
        let share = Share { micro, micro_batches: micro.len(), is_interrupted: &|| false };
        let outcome = self.run_share(task, share, step, lr, || ())?;
        outcome.context("a step that nothing interrupts was interrupted")
    }

    /// Runs this process's share of a step like [`Self::run`]. Calls `meanwhile` once all work is queued on the
    /// GPU, before it waits for the results. Returns `None` for an interrupted step: parameters, optimizer and loss
    /// scale are as before it.
    pub fn run_share(
        &mut self,
        task: &dyn Task,
        share: Share<'_>,
        step: u64,
        lr: f64,
        meanwhile: impl FnOnce(),
    ) -> Result<Option<StepOutcome>> {
        let Share { micro, micro_batches, is_interrupted } = share;
        self.world.at_step(step);
        let loss_scale = self.loss_scale.as_ref().map(LossScale::factor);
        let scale = loss_scale.unwrap_or(1.0);
        // The buffer is to hold the gradient of the means over the targets of the whole step, times the loss
        // scale.
        let terms = task.terms();
        let mut counts = vec![0; terms.len()];
        for batch in micro {
            counts.iter_mut().zip(task.counts(batch)).for_each(|(all, count)| *all += count);
        }
        let counts = self.world.sum(counts)?.into_iter();
        let scales: Vec<f32> =
            terms.iter().zip(counts).map(|(t, n)| (scale * t.weight / n.max(1) as f64) as f32).collect();
        self.gradients.clear();
        let on_cpu = task.parameters().flat().device().is_cpu();
        let leaf = if on_cpu { micro_batches_per_leaf(micro_batches, self.world.size) } else { usize::MAX };
        let mut parts = Vec::with_capacity(micro.len());
        for (index, batch) in micro.iter().enumerate() {
            if index > 0 && !self.world.is_shared() && is_interrupted() {
                return Ok(None);
            }
            let last_micro_batch = index + 1 == micro.len();
            let pass = Pass { last_micro_batch, ..Pass::new(self.seed, step) };
            if index > 0 && index.is_multiple_of(leaf) {
                self.gradients.begin_leaf()?;
            }
            let losses = task.accumulate(batch, pass, &scales, &self.gradients)?;
            parts.push(Part { losses, tokens: batch.num_tokens(), flops: task.flops(batch) });
        }
        self.gradients.end_leaves()?;
        // A loss that is not finite stops the update in every process.
        let parts = self.shared(parts)?;
        let norm = norm::l2(self.gradients.flat()?)?;
        for loss in parts.iter().flat_map(|part| &part.losses) {
            loss.poison(&norm)?;
        }
        let clip = Clip { norm: &norm, max_norm: self.max_grad_norm };
        self.optimizer.update(task.parameters(), &self.gradients, clip, lr, 1.0 / scale)?;
        self.optimizer.share(task.parameters())?;
        meanwhile();
        // --- from here on the device is waited for: once a step ---
        let losses = summed(&parts)?;
        let (mut tokens, mut flops) = (0, 0.0);
        for part in &parts {
            tokens += part.tokens;
            flops += part.flops;
        }
        let grad_norm = cuda::read(&norm)?[0] / scale;
        let skipped = self.judge(&losses, grad_norm);
        if skipped.is_some() {
            self.optimizer.was_skipped();
        }
        Ok(Some(StepOutcome { losses, grad_norm, tokens, flops, loss_scale, skipped }))
    }

    /// The micro-batches of all processes, in their order, and in the buffer their gradients.
    fn shared(&self, parts: Vec<Part>) -> Result<Vec<Part>> {
        if !self.world.is_shared() {
            return Ok(parts);
        }
        match &self.sums {
            Some(sums) => sums.finish(self.gradients.flat()?)?,
            None => self.world.sum_in_place(self.gradients.flat()?)?,
        }
        let own = parts.iter().map(Part::told).collect::<Result<Vec<_>>>()?;
        let device = self.gradients.flat()?.device();
        self.world.gather(&own)?.iter().flatten().map(|told| Part::heard(told, device)).collect()
    }

    /// Whether the step was skipped, and why; the loss scale follows.
    fn judge(&mut self, losses: &[Loss], grad_norm: f64) -> Option<Skip> {
        if let Some(loss) = losses.iter().find(|loss| !loss.sum.is_finite()) {
            return Some(Skip::NotFinite("loss", loss.sum));
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

/// What a step has of one micro-batch beside its gradients.
struct Part {
    losses: Vec<PendingLoss>,
    tokens: usize,
    flops: f64,
}

/// A [`Part`] between processes: tokens, the bits of its FLOPs, and of each loss the bits of its sum, its
/// count, and how many are right.
type Told = (usize, u64, Vec<(u64, usize, usize)>);

impl Part {
    fn told(&self) -> Result<Told> {
        let loss = |loss: &PendingLoss| {
            let Loss { sum, count, correct } = loss.read()?;
            Ok((sum.to_bits(), count, correct))
        };
        Ok((self.tokens, self.flops.to_bits(), self.losses.iter().map(loss).collect::<Result<_>>()?))
    }

    fn heard((tokens, flops, losses): &Told, device: &Device) -> Result<Self> {
        let loss = |&(sum, count, correct): &(u64, usize, usize)| {
            Ok(PendingLoss::known(Loss { sum: f64::from_bits(sum), count, correct }, device)?)
        };
        let losses = losses.iter().map(loss).collect::<Result<_>>()?;
        Ok(Self { losses, tokens: *tokens, flops: f64::from_bits(*flops) })
    }
}

/// The losses of all micro-batches, one a term.
fn summed(parts: &[Part]) -> Result<Vec<Loss>> {
    let mut sums = vec![Loss::default(); parts.first().map_or(0, |part| part.losses.len())];
    for part in parts {
        for (sum, loss) in sums.iter_mut().zip(&part.losses) {
            *sum += loss.read()?;
        }
    }
    Ok(sums)
}
