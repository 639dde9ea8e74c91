//! One optimizer step: forward and backward of every micro-batch, global norm, clipping, update.

use anyhow::Result;

use crate::batches::Batch;
use crate::distributed::World;
use crate::error::Class;
use crate::error::Problem;
use crate::layers::Gradients;
use crate::layers::context::Pass;
use crate::ops::norm;
use crate::ops::update::Clip;
use crate::optim::Optimizer;
use crate::precision::LossScale;
use crate::tasks::Loss;
use crate::tasks::PendingLoss;
use crate::tasks::Task;

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
    /// Whether the scaled gradients overflowed, so that nothing was updated.
    pub skipped: bool,
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
    /// Trains on the micro-batches of step number `step` (from 1). A non-finite loss or norm is an error that
    /// names the step and its samples; parameters and optimizer are as before it. Where the loss is scaled, a
    /// non-finite norm is an overflow: the step is skipped, and only overflows that do not end are an error.
    pub fn run(&mut self, task: &dyn Task, micro: &[Batch], step: u64, lr: f64) -> Result<StepOutcome> {
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
        // --- from here on the device is waited for: once a step ---
        let losses = self.sum(&losses, micro, step)?;
        let grad_norm = norm.to_vec1::<f64>()?[0] / scale;
        let skipped = !grad_norm.is_finite();
        if skipped {
            self.optimizer.was_skipped();
            let Some(loss_scale) = &mut self.loss_scale else {
                return Err(diverged("gradient norm", grad_norm, step, micro));
            };
            loss_scale.overflowed(step)?;
        } else if let Some(loss_scale) = &mut self.loss_scale {
            loss_scale.succeeded();
        }
        Ok(StepOutcome { losses, grad_norm, tokens, flops, loss_scale, skipped })
    }

    /// The losses of all micro-batches; the first that is not finite is an error.
    fn sum(&mut self, losses: &[Vec<PendingLoss>], micro: &[Batch], step: u64) -> Result<Vec<Loss>> {
        let mut sums = vec![Loss::default(); losses.first().map_or(0, Vec::len)];
        for (losses, batch) in losses.iter().zip(micro) {
            for (sum, loss) in sums.iter_mut().zip(losses) {
                let loss = loss.read()?;
                if !loss.sum.is_finite() {
                    self.optimizer.was_skipped();
                    return Err(diverged("loss", loss.mean(), step, std::slice::from_ref(batch)));
                }
                *sum += loss;
            }
        }
        Ok(sums)
    }
}

fn diverged(what: &str, value: f64, step: u64, batches: &[Batch]) -> anyhow::Error {
    let mut ids: Vec<String> = batches.iter().flat_map(|b| &b.sample_ids).map(ToString::to_string).collect();
    let more = ids.len().saturating_sub(16);
    ids.truncate(16);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    Problem::new(format!("{what} is {value} in step {step}, samples {}{rest}", ids.join(" ")))
        .class(Class::Diverged)
        .hint("lower `training.learning_rate` or lengthen `training.warmup_steps`; the last checkpoint is untouched")
        .into()
}
