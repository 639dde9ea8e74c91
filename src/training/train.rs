//! The training loop and its parts.
//!
//! [`Trainer::run`] is the loop; `step.rs` is one step, `cadence.rs` and `stopping.rs` decide what is due and
//! when to end, `state.rs` is what a checkpoint stores. `average.rs` averages the weights. `divergence.rs`
//! detects divergence, `rollback.rs` goes back to a checkpoint. The loop knows no file format and no
//! terminal.

pub mod auto_batch_size;
pub mod average;
pub mod band;
pub mod bench;
pub mod cadence;
pub mod checkpoint_files;
pub mod clock;
pub mod decay;
pub mod divergence;
pub mod horizon;
pub mod inspect;
pub mod meter;
mod own_folder;
pub mod phases;
pub mod probe;
mod products;
pub mod replay;
pub mod request;
pub mod results;
pub mod resume;
pub mod rollback;
pub mod room;
pub mod run;
pub mod run_folder;
pub mod signals;
pub mod state;
pub mod step;
pub mod stopping;
#[cfg(test)]
mod tests;
pub mod trial;
pub mod used;
mod weights;

use anyhow::Result;
use candle_core::{Device, Tensor};
use serde::{Deserialize, Serialize};

use crate::tasks::Task;
use crate::tasks::run::{Data, Scores};
use crate::telemetry::Record;
use crate::train::average::WeightAverage;
use crate::train::cadence::{Cadence, Due};
use crate::train::clock::{Clock, Rates};
use crate::train::horizon::{Horizon, Pace};
use crate::train::meter::Meter;
use crate::train::phases::Phases;
use crate::train::probe::Probe;
use crate::train::rollback::Unfinite;
use crate::train::run_folder::RunFolder;
use crate::train::signals::Signals;
use crate::train::state::{TrainState, loss_values};
use crate::train::step::{Share, Skip, StepOutcome, Stepper};
use crate::train::stopping::out_of_time;
use base::fs;
use base::fs::Sha256Sum;
use data::batches::StepBatches;
use model::distributed::World;
use model::optim::schedule::Schedule;
use model::precision::LossScale;
use ops::memory;
use ops::parallel::BLOCK_VALUES;
use ops::tensor::with_slice;

/// Why training ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// All steps are done.
    Steps,
    /// The time limit is reached.
    Time,
    /// Evaluation did not improve `early_stopping_patience` times in a row.
    Patience,
    /// A signal was received; the state is saved and can be resumed.
    Signal(u8),
    /// The step at which a trial pauses is done and evaluated; the state is saved and can be resumed.
    Pause,
}

impl End {
    /// True if the run is over: it neither paused nor was it stopped by a signal.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Signal(_) | Self::Pause)
    }

    /// The end by a signal that any process has received.
    fn by_signal(world: World, signals: &Signals) -> Result<Self> {
        Ok(Self::Signal(world.any(signals.received())?.unwrap_or(0)))
    }
}

/// Rules for an end before the last step.
#[derive(Debug, Clone, Default)]
pub struct StopRules {
    /// Evaluations without improvement after which training ends.
    pub patience: Option<u32>,
    /// Limit on the seconds of training, over all sittings.
    pub budget_seconds: Option<f64>,
    /// The step at which a trial pauses.
    pub pause_step: Option<u64>,
    /// Signals received by this process.
    pub signals: Signals,
    /// The processes that end together.
    pub world: World,
}

/// Everything that one run of the loop needs.
pub struct Trainer<'a> {
    /// The task to train.
    pub task: &'a dyn Task,
    /// Executes one step.
    pub stepper: Stepper,
    /// The moving average of the weights, if it is evaluated and written instead of the weights.
    pub average: Option<WeightAverage>,
    /// Learning rate of each step.
    pub schedule: Schedule,
    /// Decides what is due after a step.
    pub cadence: Cadence,
    /// Rules for an early end.
    pub rules: StopRules,
    /// Estimates the steps for which there is time, if a budget or a deadline limits the run.
    pub pace: Option<Pace>,
    /// The steps at which the rows, the RoPE base or the data change.
    pub phases: Phases,
    /// Robust standard deviations above the median from which on a loss is a spike; 0 for no spikes.
    pub loss_spike_threshold: f64,
    /// The score that decides which checkpoint is best.
    pub best_metric: &'a str,
    /// Save a checkpoint at every best evaluation, in addition to the cadence.
    pub keep_best: bool,
    /// Source of batches and evaluations.
    pub data: &'a mut dyn Data,
    /// An additional measurement of the weights during training.
    pub probe: Option<&'a dyn Probe>,
    /// The latest scores of the probe.
    pub probed: Scores,
    /// Non-finite losses of the last step and evaluation.
    pub unfinite: Unfinite,
    /// Use and cost of the machine.
    pub meter: Meter,
    /// Destination of records and checkpoints.
    pub folder: &'a mut RunFolder,
}

impl Trainer<'_> {
    /// Trains from `state` until the run ends; returns the reason for the end, and the rates. After a run
    /// that no signal ended, the model has the weights that are evaluated and written.
    pub fn run(&mut self, state: &mut TrainState) -> Result<(End, Rates)> {
        let mut clock = Clock::new(state.elapsed_seconds);
        if let (Some(loss_scale), Some(saved)) = (&mut self.stepper.loss_scale, state.loss_scale) {
            loss_scale.restore(saved);
        }
        self.set_rope_base(self.phases.theta_of(state.step));
        self.follow(state.horizon);
        if let Some(budget_seconds) = self.rules.budget_seconds {
            self.folder.end_within(budget_seconds - state.elapsed_seconds);
        }
        // A finished run only lacks what is made from its last checkpoint, so no further step is done.
        let end = if state.finished { End::Steps } else { self.steps(state, &mut clock)? };
        Ok((self.finish(state, end, &mut clock)?, clock.rates()))
    }

    fn steps(&mut self, state: &mut TrainState, clock: &mut Clock) -> Result<End> {
        // A signal may have interrupted the evaluation that was due when the last sitting ended.
        self.observe(state, Due { save: false, ..self.cadence.after(state.step) }, clock)?;
        // On a GPU, `ahead` is the batch of the next step, prefetched while the GPU computes.
        let mut unlogged = None;
        let mut ahead = None;
        let prefetches = self.task.planner().is_some();
        if !self.phases.is_border(state.step) {
            self.report_phase(state.step);
        }
        while state.step < self.cadence.total_steps() {
            if let Some(end) = self.early_end(state, clock)? {
                // A run logs its last step. If it is stopped or paused, this step is not its last one.
                if let (Some((outcome, lr)), true) = (&unlogged, end.is_final()) {
                    self.log(state, outcome, *lr, clock);
                }
                return Ok(end);
            }
            let batches = match ahead.take() {
                Some(batches) => batches?,
                None => clock.waiting(|| self.data.next_step())?,
            };
            self.enter_phase(state);
            let lr = self.schedule.lr_at(self.scheduled(state));
            let more = prefetches && state.step + 1 < self.cadence.total_steps();
            let task = self.task;
            let data = &mut *self.data;
            let share = Share {
                micro: &batches.micro,
                micro_batches: batches.micro_batches,
                is_interrupted: &|| self.rules.signals.received().is_some(),
            };
            let outcome = self.stepper.run_share(task, share, state.step + 1, lr, || {
                ahead = more.then(|| clock.waiting(|| sent_step(task, data)));
            })?;
            let Some(outcome) = outcome else {
                // The state is that after the last whole step, and so must be the model's config.json.
                self.set_rope_base(self.phases.theta_of(state.step));
                return self.stopped();
            };
            state.advance(&batches, &outcome);
            self.after_update(state.step, &outcome)?;
            state.loss_scale = self.stepper.loss_scale.as_ref().map(LossScale::snapshot);
            state.elapsed_seconds = clock.elapsed_seconds();
            clock.step(outcome.tokens as u64);
            self.meter.step(outcome.flops, clock.step_seconds());
            if self.diverges(state, &outcome, &batches.micro) {
                self.roll_back(state, &outcome, &batches)?;
                unlogged = None;
                ahead = None;
                clock.restart();
                continue;
            }
            self.unfinite.last_step = matches!(outcome.skipped, Some(Skip::NotFinite(..)));
            self.data.give_back(batches);
            self.adjust_length(state, clock)?;
            // --- everything below observes; nothing below changes the numbers ---
            self.folder.step(state.step);
            let due = self.due_after(state);
            if due.log {
                self.log(state, &outcome, lr, clock);
            }
            unlogged = (!due.log).then_some((outcome, lr));
            self.compare_replicas(state.step, due)?;
            self.observe(state, due, clock)?;
        }
        Ok(End::Steps)
    }

    /// Checks from time to time, and before a save, that all processes have the same parameters.
    fn compare_replicas(&self, step: u64, due: Due) -> Result<()> {
        let world = self.rules.world;
        if !world.is_to_compare(step, due.save || due.last) {
            return Ok(());
        }
        let parameters = self.task.parameters().flat().to_device(&Device::Cpu)?;
        world.compare_replicas(&with_slice(&parameters, sha256_of_values)?, step)
    }

    /// Averages the weights after a step that changed them.
    fn after_update(&mut self, step: u64, outcome: &StepOutcome) -> Result<()> {
        match &mut self.average {
            Some(average) if outcome.skipped.is_none() => {
                Ok(average.after_update(self.task.parameters(), step)?)
            }
            _ => Ok(()),
        }
    }

    /// The weights that are evaluated and written.
    fn evaluated_weights(&self) -> Tensor {
        average::evaluated_weights(self.average.as_ref(), self.task.parameters())
    }

    /// Before an evaluation puts the average of the weights into the model, after it takes it out again.
    fn exchange_weights(&self) -> Result<()> {
        self.average.as_ref().map_or(Ok(()), |average| Ok(average.exchange(self.task.parameters())?))
    }

    /// The step of the configured schedule that corresponds to the present step.
    fn scheduled(&self, state: &TrainState) -> u64 {
        let planned = self.schedule.total_steps();
        state.horizon.map_or(state.step, |horizon| horizon.scheduled(state.step, planned))
    }

    /// Shortens the run, or lengthens it again, to fit the remaining time.
    fn adjust_length(&mut self, state: &mut TrainState, clock: &Clock) -> Result<()> {
        let Some(pace) = &mut self.pace else { return Ok(()) };
        let ending_seconds = clock.rates().eval_seconds.unwrap_or(0.0);
        let found = pace.look(state.step, clock.elapsed_seconds(), ending_seconds, state.horizon);
        let Some(horizon) = self.rules.world.agree(found)? else { return Ok(()) };
        let steps = horizon.total_steps();
        let planned = self.schedule.total_steps();
        if pace.is_news(steps) {
            let text =
                format!("there is time for {steps} of {planned} steps: the learning rate ends with them");
            self.folder.note(&text);
        }
        state.horizon = Some(horizon);
        self.follow(Some(horizon));
        Ok(())
    }

    /// Sets the total number of steps to that of `horizon`, or of the schedule if there is none.
    fn follow(&mut self, horizon: Option<Horizon>) {
        let total_steps = horizon.map_or(self.schedule.total_steps(), |horizon| horizon.total_steps());
        self.cadence.end_after(total_steps);
        self.folder.end_after(total_steps);
        if let Some(step) = self.rules.pause_step {
            self.folder.pause_after(step);
        }
    }

    /// Returns what is due after the step just done. While steps are bad no checkpoint is due, because a
    /// rollback must not end there.
    fn due_after(&self, state: &mut TrainState) -> Due {
        let due = self.cadence.after(state.step);
        let is_good = state.divergence.bad_steps() == 0;
        if due.save && is_good {
            state.divergence.checkpoint_due(state.step);
        }
        Due { save: due.save && (is_good || due.last), ..due }
    }

    /// Sets the RoPE base of the next step. At a phase boundary, clears the loss history used for spike
    /// detection, since losses with another objective, other rows, RoPE base
    /// or data are not comparable.
    fn enter_phase(&self, state: &mut TrainState) {
        self.set_rope_base(self.phases.theta_at(state.step));
        if self.phases.is_border(state.step) {
            state.divergence.forget_losses();
            self.report_phase(state.step);
        }
    }

    fn set_rope_base(&self, global_rope_theta: Option<f64>) {
        if let Some(theta) = global_rope_theta {
            self.task.set_global_rope_theta(theta);
        }
    }

    /// Prints the objective, rows, RoPE base and data of the steps after `steps_done`, if the run has phases.
    fn report_phase(&self, steps_done: u64) {
        let Some(text) = self.phases.text_at(steps_done) else { return };
        let mix = self.data.mix(steps_done);
        let shares: Vec<String> =
            mix.iter().map(|(name, share)| format!("{name} {:.0} %", 100.0 * share)).collect();
        let sources =
            if shares.is_empty() { String::new() } else { format!(", tokens of {}", shares.join(", ")) };
        self.folder.note(&format!("from step {}: {text}{sources}", steps_done + 1));
    }

    /// Evaluates, saves and probes as due after a step that is not the last one; [`Trainer::finish`] does so
    /// for the last one.
    fn observe(&mut self, state: &mut TrainState, due: Due, clock: &mut Clock) -> Result<()> {
        if due.last {
            return Ok(());
        }
        let mut is_best = false;
        if due.eval && state.last_eval_step != Some(state.step) {
            self.evaluate(state, clock)?;
            is_best = self.keep_best && state.best.step() == Some(state.step);
            clock.restart();
        }
        if due.save || is_best {
            clock.saving(|| self.save(state, due.last))?;
            clock.restart();
        }
        if due.probe {
            self.probe(state)?;
            clock.restart();
        }
        Ok(())
    }

    /// Returns the reason to end now, if any. A signal or time limit of any process ends all.
    fn early_end(&self, state: &TrainState, clock: &Clock) -> Result<Option<End>> {
        let rules = &self.rules;
        let end = match rules.signals.received() {
            Some(signal) => Some(End::Signal(signal)),
            None if rules.pause_step.is_some_and(|step| state.step >= step) => Some(End::Pause),
            None if state.best.out_of_patience(rules.patience) => Some(End::Patience),
            None => out_of_time(clock.elapsed_seconds(), clock.step_seconds(), rules.budget_seconds)
                .then_some(End::Time),
        };
        rules.world.any(end)
    }

    fn stopped(&self) -> Result<End> {
        End::by_signal(self.rules.world, &self.rules.signals)
    }

    fn finish(&mut self, state: &mut TrainState, end: End, clock: &mut Clock) -> Result<End> {
        let mut end = end;
        let evaluates = !matches!(end, End::Signal(_)) && state.last_eval_step != Some(state.step);
        if evaluates && !self.evaluate(state, clock)? {
            // Only the last evaluation is missing; a resumed run will do it.
            end = self.stopped()?;
        }
        if !matches!(end, End::Signal(_)) {
            self.require_finite_end(state)?;
        }
        if end.is_final() && !self.probe(state)? {
            end = self.stopped()?;
        }
        state.finished = end.is_final();
        self.save(state, true)?;
        if state.finished {
            self.exchange_weights()?;
        }
        Ok(end)
    }

    /// Saves a checkpoint, with the optimizer state gathered from all processes.
    fn save(&mut self, state: &TrainState, last: bool) -> Result<()> {
        self.stepper.optimizer.gather()?;
        let saved = self.folder.save(self.task, &self.stepper.optimizer, self.average.as_ref(), state, last);
        self.stepper.optimizer.let_go();
        saved
    }

    fn log(&mut self, state: &mut TrainState, outcome: &StepOutcome, lr: f64, clock: &mut Clock) {
        let (tokens_per_second, wait_share) = clock.take_rates();
        let values = [
            ("train/grad_norm", outcome.grad_norm),
            ("train/learning_rate", lr),
            ("train/epoch", state.epoch),
            ("perf/tokens_per_second", tokens_per_second),
            ("perf/data_wait_share", wait_share),
            ("perf/elapsed_seconds", clock.elapsed_seconds()),
        ];
        let saving = Some(clock.take_save_seconds()).filter(|seconds| *seconds > 0.0);
        let saving = saving.map(|seconds| ("perf/save_seconds", seconds));
        let memory = fs::peak_resident_bytes().map(|bytes| ("perf/peak_memory_bytes", bytes as f64));
        let precision = outcome.loss_scale.map(|scale| ("train/loss_scale", scale));
        let skipped =
            (state.skipped_steps > 0).then_some(("train/skipped_steps", state.skipped_steps as f64));
        let rollbacks = state.divergence.rollbacks();
        let rollbacks = (rollbacks > 0).then_some(("train/rollbacks", rollbacks as f64));
        let mix = self.data.mix(state.step - 1).into_iter();
        let mix = mix.map(|(name, share)| (format!("data/{name}_share"), share));
        let machine = self.meter.take(tokens_per_second, clock.elapsed_seconds());
        // The loss of a step without targets and the norm of a skipped step are not finite and left out.
        let values = values
            .into_iter()
            .chain(saving)
            .chain(memory)
            .chain(precision)
            .chain(skipped)
            .chain(rollbacks)
            .chain(machine);
        let values = values.map(|(tag, value)| (tag.to_string(), value));
        let losses = loss_values(self.task.terms(), &mut state.window);
        let values = losses.into_iter().chain(values).chain(mix).filter(|(_, v)| v.is_finite()).collect();
        self.folder.record(&Record { step: state.step, epoch: state.epoch, values });
    }

    /// Evaluates and records the scores; false if a signal interrupted the evaluation.
    fn evaluate(&mut self, state: &mut TrainState, clock: &mut Clock) -> Result<bool> {
        let signals = &self.rules.signals;
        // Batches of an evaluation have other sizes than those of steps, so keeping freed blocks of both
        // would add up.
        memory::give_back_freed_blocks();
        self.exchange_weights()?;
        let scores = clock.evaluating(|| self.data.evaluate(self.task, &|| signals.received().is_some()));
        self.exchange_weights()?;
        let scores = self.rules.world.all_of(scores?)?;
        memory::give_back_freed_blocks();
        let Some(scores) = scores else { return Ok(false) };
        self.unfinite.last_loss = scores.iter().any(|(name, value)| name == "loss" && value.is_infinite());
        let seconds = clock.rates().eval_seconds.map(|seconds| ("perf/eval_seconds".to_string(), seconds));
        let values = scores.iter().map(|(name, value)| (format!("eval/{name}"), *value));
        let values = values.chain(seconds).collect();
        self.folder.record(&Record { step: state.step, epoch: state.epoch, values });
        self.warn_unmeasured(state, &scores);
        state.evaluated(&scores, self.best_metric);
        Ok(true)
    }

    /// Warns once if the score that decides about checkpoints and early stopping was not measured.
    fn warn_unmeasured(&self, state: &TrainState, scores: &[(String, f64)]) {
        let is_unmeasured = scores.iter().any(|(name, value)| name == self.best_metric && value.is_nan());
        let was_reported =
            state.last_eval.iter().any(|(name, value)| name == self.best_metric && value.is_none());
        if is_unmeasured && !was_reported {
            self.folder.warn(&format!(
                "`eval_{}` after step {} is not measured: the evaluation has no example or token that tells it, so \
                 it neither ends the run nor makes a checkpoint the best",
                self.best_metric, state.step
            ));
        }
    }
}

/// The batches of the next step, with the first micro-batch being sent to the device. The others are sent
/// while it computes.
fn sent_step(task: &dyn Task, data: &mut dyn Data) -> Result<StepBatches> {
    let mut batches = data.next_step()?;
    batches.micro.first_mut().map_or(Ok(()), |first| task.send(first))?;
    Ok(batches)
}

/// SHA-256 of the little-endian bytes of `values`.
fn sha256_of_values(values: &[f32]) -> String {
    let mut sum = Sha256Sum::default();
    for block in values.chunks(BLOCK_VALUES) {
        let bytes: Vec<u8> = block.iter().flat_map(|value| value.to_le_bytes()).collect();
        sum.add(&bytes);
    }
    sum.finish()
}
