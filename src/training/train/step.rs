//! One optimizer step: forward and backward of every micro-batch, global norm, clipping, update.

use std::sync::Arc;

use anyhow::{Context, Result};
use candle_core::Device;

use crate::tasks::{Loss, PendingLoss, Task, Term};
use data::batches::Batch;
use model::distributed::{Sums, World, micro_batches_per_leaf};
use model::layers::Gradients;
use model::layers::context::Pass;
use model::optim::Optimizer;
use model::precision::LossScale;
use ops::update::Clip;
use ops::{cuda, norm};

/// Measurements of a step.
#[derive(Debug, Clone)]
pub struct StepOutcome {
    /// Losses over all targets of the step, by term.
    pub losses: Vec<Loss>,
    /// Norm of the mean gradient before clipping; not finite in a step that was skipped.
    pub grad_norm: f64,
    /// Tokens processed by the model.
    pub tokens: usize,
    /// Floating-point operations.
    pub flops: f64,
    /// The loss scale of this step; `None` if the loss is not scaled.
    pub loss_scale: Option<f64>,
    /// The reason, if the step made no update.
    pub skipped: Option<Skip>,
}

impl StepOutcome {
    /// The loss of the step: the weighted sum of the means of its terms; `None` if a term has no targets or
    /// is not finite.
    pub fn loss(&self, terms: &[Term]) -> Option<f64> {
        let sum: f64 = terms.iter().zip(&self.losses).map(|(term, loss)| term.weight * loss.mean()).sum();
        (!terms.is_empty() && sum.is_finite()).then_some(sum)
    }
}

/// The reason why a step made no update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Skip {
    /// The scaled gradients overflowed their number type; the next step has a smaller scale.
    Overflow,
    /// The loss or the gradient norm (the name) has this value, and no smaller loss scale can avoid it.
    NotFinite(&'static str, f64),
}

/// The share of a step that one process computes.
#[derive(Clone, Copy)]
pub struct Share<'a> {
    /// Micro-batches of this process.
    pub micro: &'a [Batch],
    /// Number of micro-batches of all processes.
    pub micro_batches: usize,
    /// Returns true if the step should be dropped; called before each micro-batch but the first, and only in a
    /// process that trains alone, since others would wait for its gradients.
    pub is_interrupted: &'a dyn Fn() -> bool,
}

/// The optimizer and the gradient buffers that a step changes, and its settings.
#[derive(Debug)]
pub struct Stepper {
    /// Moments and parameter groups.
    pub optimizer: Optimizer,
    /// Buffer in which gradients accumulate.
    pub gradients: Gradients,
    /// Largest norm of the mean gradient; 0 turns clipping off.
    pub max_grad_norm: f64,
    /// Seed of dropout.
    pub seed: u64,
    /// Dynamic loss scale; `None` for number types that need none.
    pub loss_scale: Option<LossScale>,
    /// The processes among which the micro-batches are divided.
    pub world: World,
    /// The sums of gradients over the processes, if they are exchanged during the backward pass.
    pub sums: Option<Arc<Sums>>,
}

impl Stepper {
    /// Runs step number `step` (from 1) on these micro-batches, in one process. If the loss or the norm is
    /// not finite, the step is skipped: parameters and optimizer stay as they were.
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
        // The gradient buffer is to contain the gradient of the mean loss over the targets of the whole step,
        // times the loss scale.
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
        let norm = norm::l2_of_parts(&self.gradients.buffers()?.parts())?;
        for loss in parts.iter().flat_map(|part| &part.losses) {
            loss.poison(&norm)?;
        }
        let clip = Clip { norm: &norm, max_norm: self.max_grad_norm };
        self.optimizer.update(task.parameters(), &self.gradients, clip, lr, 1.0 / scale)?;
        self.optimizer.share(task.parameters())?;
        meanwhile();
        // --- from here on the device is waited for: once a step ---
        let losses = summed(&parts)?;
        let mut tokens = 0;
        let mut flops = 0.0;
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

    /// Sums the gradients over all processes, and returns the parts of all micro-batches in their order.
    fn shared(&self, parts: Vec<Part>) -> Result<Vec<Part>> {
        if !self.world.is_shared() {
            return Ok(parts);
        }
        match &self.sums {
            Some(sums) => sums.finish(self.gradients.flat()?)?,
            None => self.world.sum_in_place(self.gradients.flat()?)?,
        }
        let own = parts.iter().map(Part::to_message).collect::<Result<Vec<_>>>()?;
        let device = self.gradients.flat()?.device();
        self.world.gather(&own)?.iter().flatten().map(|message| Part::from_message(message, device)).collect()
    }

    /// Decides whether the step was skipped, and why, and updates the loss scale.
    fn judge(&mut self, losses: &[Loss], grad_norm: f64) -> Option<Skip> {
        if let Some(loss) = losses.iter().find(|loss| !loss.sum.is_finite()) {
            return Some(Skip::NotFinite("loss", loss.sum));
        }
        let loss_scale = self.loss_scale.as_mut();
        if grad_norm.is_finite() {
            loss_scale.into_iter().for_each(LossScale::succeeded);
            return None;
        }
        let has_smaller_scale = loss_scale.is_some_and(LossScale::overflowed);
        Some(if has_smaller_scale { Skip::Overflow } else { Skip::NotFinite("gradient norm", grad_norm) })
    }
}

/// The results of one micro-batch apart from its gradients.
struct Part {
    losses: Vec<PendingLoss>,
    tokens: usize,
    flops: f64,
}

/// A [`Part`] as sent between processes: tokens, the bits of its FLOPs, and for each loss the bits of its
/// sum, its count, and the number of correct predictions.
type PartMessage = (usize, u64, Vec<(u64, usize, usize)>);

impl Part {
    fn to_message(&self) -> Result<PartMessage> {
        let losses = self.losses.iter().map(|loss| {
            let Loss { sum, count, correct } = loss.read()?;
            Ok((sum.to_bits(), count, correct))
        });
        Ok((self.tokens, self.flops.to_bits(), losses.collect::<Result<_>>()?))
    }

    fn from_message((tokens, flops, losses): &PartMessage, device: &Device) -> Result<Self> {
        let losses = losses.iter().map(|&(sum, count, correct)| {
            Ok(PendingLoss::known(Loss { sum: f64::from_bits(sum), count, correct }, device)?)
        });
        let losses = losses.collect::<Result<_>>()?;
        Ok(Self { losses, tokens: *tokens, flops: f64::from_bits(*flops) })
    }
}

/// The losses of all micro-batches, by term.
fn summed(parts: &[Part]) -> Result<Vec<Loss>> {
    let mut sums = vec![Loss::default(); parts.first().map_or(0, |part| part.losses.len())];
    for part in parts {
        for (sum, loss) in sums.iter_mut().zip(&part.losses) {
            *sum += loss.read()?;
        }
    }
    Ok(sums)
}
