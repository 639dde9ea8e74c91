//! Acts on steps that go wrong: bad steps are counted, many in a row send the run back to a checkpoint from
//! before them and past their data, and a run that cannot go back ends with what `mlmtrain replay` needs.
//!
//! Which steps are bad is decided in `divergence.rs`. The outcome does not depend on where a run was
//! interrupted: it goes back only to checkpoints that were due by `training.save_steps`, and checkpoints of
//! interruptions replace none of these.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::tasks::run::Beginning;
use crate::train::Trainer;
use crate::train::checkpoint_files::Resumed;
use crate::train::divergence::{BAD_STEPS_MAX, ROLLBACKS_MAX, Verdict};
use crate::train::state::TrainState;
use crate::train::step::{Skip, StepOutcome};
use base::error::{Class, Problem};
use data::batches::{Batch, StepBatches};

/// Number of skipped steps that are reported one by one; later ones are only counted.
const SKIPS_REPORTED: u64 = 10;

/// Number of spikes in a row at which a warning is printed.
const SPIKES_BEFORE_WARNING: u32 = 3;

/// Most sample ids that a message lists.
const SAMPLES_NAMED: usize = 16;

/// A failed step, as saved for `mlmtrain replay`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailedStep {
    /// The reason for the failure.
    pub problem: String,
    /// Number of the step, from 1.
    pub step: u64,
    /// Seed of the run, used for dropout.
    pub seed: u64,
    /// Loss scale, if the loss was scaled.
    pub loss_scale: Option<f64>,
    /// Micro-batches of the step.
    pub micro: Vec<Batch>,
}

/// Values that are not finite at the end of a run, too few steps in a row for a rollback.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unfinite {
    /// The last step was skipped because its loss or its gradients were not finite.
    pub last_step: bool,
    /// The loss of the latest evaluation was not finite.
    pub last_loss: bool,
}

/// Number of skipped steps at the end of a run from which on it counts as diverged.
const LAST_SKIPS_MAX: u32 = 2;

impl Trainer<'_> {
    /// Returns an error if the last evaluation is not finite, or if the last steps were skipped but too few
    /// for a rollback. Neither matters if the final model is that of an earlier evaluation.
    pub(super) fn require_finite_end(&self, state: &TrainState) -> Result<()> {
        if self.keep_best && state.best.step().is_some_and(|step| step != state.step) {
            return Ok(());
        }
        let skipped = state.divergence.bad_steps();
        let trouble = if self.unfinite.last_loss {
            format!("the loss of the evaluation after step {} is not finite", state.step)
        } else if self.unfinite.last_step && (skipped >= LAST_SKIPS_MAX || u64::from(skipped) >= state.step) {
            format!(
                "the last {skipped} of {} steps were skipped: their losses or gradients are not finite",
                state.step
            )
        } else {
            return Ok(());
        };
        Err(Problem::new(format!("training diverges: {trouble}"))
            .class(Class::Diverged)
            .hint("lower `training.learning_rate`; no model of this step is written")
            .into())
    }

    /// Records the step that `state` has just counted, and warns if it is bad. Returns true if training
    /// has diverged.
    pub(super) fn diverges(
        &mut self,
        state: &mut TrainState,
        outcome: &StepOutcome,
        micro: &[Batch],
    ) -> bool {
        let loss = match (outcome.skipped, outcome.loss(self.task.terms())) {
            (Some(Skip::NotFinite(..)), _) => None,
            // A step without targets has no loss to judge.
            (_, None) => return false,
            (_, loss) => loss,
        };
        let verdict = state.divergence.observe(loss, self.loss_spike_threshold);
        let step = state.step;
        let in_a_row = state.divergence.bad_steps();
        match verdict {
            Verdict::NotFinite if state.skipped_steps <= SKIPS_REPORTED => {
                let text = format!("step {step} is skipped: {}, {}", trouble_of(outcome), samples(micro));
                self.folder.warn(&text);
                if state.skipped_steps == SKIPS_REPORTED {
                    self.folder.warn("further skipped steps are only counted, in `train/skipped_steps`");
                }
            }
            // A single spike has no consequence, and is common in the small batches of fine-tuning.
            Verdict::Spike(limit) if in_a_row == SPIKES_BEFORE_WARNING => {
                let loss = loss.unwrap_or(f64::NAN);
                self.folder.warn(&format!(
                    "the loss of step {step} is {loss:.4}, like those of the {} steps before it far above all \
                     others (a spike begins at {limit:.4}, by `training.loss_spike_threshold`); {BAD_STEPS_MAX} \
                     such steps in a row lead back to a checkpoint",
                    SPIKES_BEFORE_WARNING - 1
                ));
            }
            _ => {}
        }
        state.divergence.has_diverged()
    }

    /// Goes back to a checkpoint from before the bad steps, and past their data. Returns an error of class
    /// [`Class::Diverged`] if there is no such checkpoint or rollbacks have not helped.
    pub(super) fn roll_back(
        &mut self,
        state: &mut TrainState,
        outcome: &StepOutcome,
        batches: &StepBatches,
    ) -> Result<()> {
        let good = state.divergence.last_good_step(state.step);
        let trouble = format!(
            "{} in step {2}; steps {} to {2} were all bad",
            trouble_of(outcome),
            good + 1,
            state.step
        );
        if !state.divergence.may_roll_back() {
            let why = format!("{ROLLBACKS_MAX} rollbacks have not helped");
            return Err(self.divergence_error(state, outcome, batches, &format!("{trouble}, and {why}")));
        }
        let Some(back) = self.checkpoint_before(good)? else {
            let why = "there is no checkpoint from before them that was due by `training.save_steps`";
            return Err(self.divergence_error(state, outcome, batches, &format!("{trouble}, and {why}")));
        };
        let step = back.state.step;
        self.folder.go_back(step, state.step)?;
        let passed = TrainState {
            cursor: state.cursor.clone(),
            num_input_tokens_seen: state.num_input_tokens_seen,
            total_flos: state.total_flos,
            elapsed_seconds: state.elapsed_seconds,
            skipped_steps: state.skipped_steps,
            horizon: state.horizon,
            divergence: state.divergence.rolled_back(&back.state.divergence, state.step),
            ..back.state
        };
        if let (Some(loss_scale), Some(saved)) = (&mut self.stepper.loss_scale, passed.loss_scale) {
            loss_scale.restore(saved);
        }
        *state = passed;
        self.follow(state.horizon);
        let total_steps = self.cadence.total_steps();
        self.data.start(Beginning { cursor: state.cursor.clone(), step, total_steps })?;
        self.folder.warn(&format!(
            "{trouble}: training goes on from the checkpoint of step {step}, with the data that follows them \
             (rollback {})",
            state.divergence.rollbacks()
        ));
        Ok(())
    }

    /// Restores and returns the newest checkpoint that was due before step `good`; if there is none, that of
    /// `good` itself, whose weights may be the cause of the divergence.
    fn checkpoint_before(&mut self, good: u64) -> Result<Option<Resumed>> {
        let mut due = self.folder.good_steps()?;
        due.retain(|&step| step <= good && self.cadence.saves_after(step));
        let newest_first = due.iter().rev().filter(|&&step| step < good);
        let last = due.iter().filter(|&&step| step == good);
        for &step in newest_first.chain(last) {
            let restored = self.folder.checkpoint(step).and_then(Resumed::read).and_then(|back| {
                let average = self.average.as_mut();
                let optimizer = &mut self.stepper.optimizer;
                back.restore(self.folder.folders(), self.task.parameters(), average, optimizer)?;
                Ok(back)
            });
            match restored {
                Ok(back) => return Ok(Some(back)),
                Err(e) => self.folder.warn(&format!("{e:#}; an older checkpoint is tried")),
            }
        }
        Ok(None)
    }

    /// The error that ends a diverged run; saves its last batch.
    fn divergence_error(
        &mut self,
        state: &TrainState,
        outcome: &StepOutcome,
        batches: &StepBatches,
        message: &str,
    ) -> anyhow::Error {
        let failed = FailedStep {
            problem: trouble_of(outcome),
            step: state.step,
            seed: self.stepper.seed,
            loss_scale: outcome.loss_scale,
            micro: batches.micro.clone(),
        };
        let saved = serde_json::to_value(&failed)
            .context("the failed batch as JSON")
            .and_then(|batch| self.folder.save_failed(self.task.parameters(), state.step, batch));
        let replay = match saved {
            Ok(path) => format!("`mlmtrain replay {}` runs the last of them alone", path.display()),
            Err(e) => format!("the batch could not be saved ({e:#})"),
        };
        Problem::new(format!("training diverges: {message}, {}", samples(&batches.micro)))
            .class(Class::Diverged)
            .hint(format!(
                "lower `training.learning_rate` or lengthen `training.warmup_steps`, and start in another \
                 `run.output_dir`; {replay}"
            ))
            .into()
    }
}

/// Describes what went wrong in a step.
fn trouble_of(outcome: &StepOutcome) -> String {
    match outcome.skipped {
        Some(Skip::NotFinite(what, value)) => match outcome.loss_scale {
            Some(scale) => format!("the {what} is {value} at a loss scale of {scale}"),
            None => format!("the {what} is {value}"),
        },
        _ => "the loss is far above those before it".to_string(),
    }
}

/// Lists the sample ids of a step, at most [`SAMPLES_NAMED`] of them.
fn samples(micro: &[Batch]) -> String {
    let mut ids: Vec<String> = micro.iter().flat_map(|b| &b.sample_ids).map(ToString::to_string).collect();
    let more = ids.len().saturating_sub(SAMPLES_NAMED);
    ids.truncate(SAMPLES_NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("samples {}{rest}", ids.join(" "))
}
