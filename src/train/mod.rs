//! The training loop and what it is made of.
//!
//! [`Trainer::run`] is the loop; `step.rs` is one step, `cadence.rs` and `stopping.rs` say what is due and
//! when to end, `state.rs` is what a checkpoint must hold. `divergence.rs` tells a run that learns from one
//! that does not, `rollback.rs` sends it back. The loop knows no file format and no terminal.

pub mod band;
pub mod batch_size;
pub mod bench;
pub mod cadence;
pub mod clock;
pub mod decay;
pub mod divergence;
pub mod horizon;
pub mod inspect;
pub mod meter;
mod own_folder;
pub mod phases;
pub mod probe;
pub mod replay;
pub mod results;
pub mod resume;
pub mod rollback;
pub mod room;
pub mod run;
pub mod run_folder;
pub mod saved;
pub mod signals;
pub mod state;
pub mod step;
pub mod stopping;
#[cfg(test)]
mod tests;
pub mod used;
mod weights;

use std::time::Instant;

use anyhow::Result;
use candle_core::Device;
use serde::Deserialize;
use serde::Serialize;

use crate::batches::StepBatches;
use crate::distributed::World;
use crate::fs;
use crate::fs::Sha256Sum;
use crate::ops::memory;
use crate::ops::parallel::BLOCK_VALUES;
use crate::ops::tensor::with_slice;
use crate::optim::schedule::Schedule;
use crate::precision::LossScale;
use crate::tasks::Task;
use crate::tasks::Term;
use crate::tasks::run::Data;
use crate::tasks::run::Scores;
use crate::telemetry::Record;
use crate::train::cadence::Cadence;
use crate::train::cadence::Due;
use crate::train::clock::Clock;
use crate::train::clock::Rates;
use crate::train::horizon::Horizon;
use crate::train::horizon::Pace;
use crate::train::meter::Meter;
use crate::train::phases::Phases;
use crate::train::probe::Probe;
use crate::train::rollback::Unfinite;
use crate::train::run_folder::RunFolder;
use crate::train::signals::Signals;
use crate::train::state::LossWindow;
use crate::train::state::TrainState;
use crate::train::step::Share;
use crate::train::step::Skip;
use crate::train::step::StepOutcome;
use crate::train::step::Stepper;
use crate::train::stopping::out_of_time;

/// Why training ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// All steps are done.
    Steps,
    /// The time budget is used up.
    Time,
    /// Evaluation did not improve for `early_stopping_patience` times.
    Patience,
    /// A signal came in; the state is saved and can be resumed.
    Signal(u8),
}

impl End {
    /// The end by the signal that some process has received.
    fn by_signal(world: World, signals: &Signals) -> Result<Self> {
        Ok(Self::Signal(world.any(signals.received())?.unwrap_or(0)))
    }
}

/// When to end before the last step.
#[derive(Debug, Clone, Default)]
pub struct StopRules {
    /// Evaluations without improvement that are borne.
    pub patience: Option<u32>,
    /// Seconds of training, over all sittings.
    pub budget_seconds: Option<f64>,
    /// Signals that came in.
    pub signals: Signals,
    /// The processes that end together.
    pub world: World,
}

/// Everything that one run of the loop needs.
pub struct Trainer<'a> {
    /// What is trained.
    pub task: &'a dyn Task,
    /// One step.
    pub stepper: Stepper,
    /// Learning rate over the steps.
    pub schedule: Schedule,
    /// What is due when.
    pub cadence: Cadence,
    /// When to end early.
    pub rules: StopRules,
    /// How far it gets, where a price or a day limits it.
    pub pace: Option<Pace>,
    /// Where rows, angles or data change.
    pub phases: Phases,
    /// From which loss on a step is bad, in robust standard deviations; 0 for no such limit.
    pub loss_spike_threshold: f64,
    /// The score that decides which checkpoint is best.
    pub best_metric: &'a str,
    /// Save a checkpoint at every best evaluation, whatever the cadence.
    pub keep_best: bool,
    /// Where batches come from.
    pub data: &'a mut dyn Data,
    /// What else is measured of the weights.
    pub probe: Option<&'a dyn Probe>,
    /// The latest scores of it.
    pub probed: Scores,
    /// What was not finite just now.
    pub unfinite: Unfinite,
    /// What the run makes of its machine.
    pub meter: Meter,
    /// Where records and checkpoints go.
    pub folder: &'a mut RunFolder,
}

impl Trainer<'_> {
    /// Trains from `state` until an end is reached, and says which, and how quick it was.
    pub fn run(&mut self, state: &mut TrainState) -> Result<(End, Rates)> {
        let mut clock = Clock::new(state.elapsed_seconds);
        if let (Some(loss_scale), Some(saved)) = (&mut self.stepper.loss_scale, state.loss_scale) {
            loss_scale.restore(saved);
        }
        self.use_angles(self.phases.theta_of(state.step));
        self.follow(state.horizon);
        // A run that has come to its end only lacks what is made from its checkpoint: not one step more.
        let end = if state.finished { End::Steps } else { self.steps(state, &mut clock)? };
        Ok((self.finish(state, end, &mut clock)?, clock.rates()))
    }

    fn steps(&mut self, state: &mut TrainState, clock: &mut Clock) -> Result<End> {
        // A signal may have cut off the evaluation that was due when the last sitting ended.
        self.observe(state, Due { save: false, ..self.cadence.after(state.step) }, clock)?;
        // The step after this one, where it is made ready while a GPU computes.
        let (mut unlogged, mut ahead, goes_ahead) = (None, None, self.task.planner().is_some());
        if !self.phases.is_border(state.step) {
            self.tell_phase(state.step);
        }
        while state.step < self.cadence.total_steps() {
            if let Some(end) = self.early_end(state, clock)? {
                // A run logs its last step. One that a signal stops has not come to it.
                if let (Some((outcome, lr)), false) = (&unlogged, matches!(end, End::Signal(_))) {
                    self.log(state, outcome, *lr, clock);
                }
                return Ok(end);
            }
            let batches = match ahead.take() {
                Some(batches) => batches?,
                None => clock.waiting(|| self.data.next_step())?,
            };
            self.heed_phase(state);
            let lr = self.schedule.lr_at(self.scheduled(state));
            let more = goes_ahead && state.step + 1 < self.cadence.total_steps();
            let (task, data) = (self.task, &mut *self.data);
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
                self.use_angles(self.phases.theta_of(state.step));
                return self.stopped();
            };
            state.advance(&batches, &outcome);
            state.loss_scale = self.stepper.loss_scale.as_ref().map(LossScale::snapshot);
            state.elapsed_seconds = clock.elapsed_seconds();
            clock.step(outcome.tokens as u64);
            self.meter.step(outcome.flops, clock.step_seconds());
            if self.diverges(state, &outcome, &batches.micro) {
                self.roll_back(state, &outcome, &batches)?;
                (unlogged, ahead) = (None, None);
                clock.restart();
                continue;
            }
            self.unfinite.last_step = matches!(outcome.skipped, Some(Skip::NotFinite(..)));
            self.data.give_back(batches);
            self.look_ahead(state, clock)?;
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

    /// Sees that all processes have the same model, now and then and before it is saved.
    fn compare_replicas(&self, step: u64, due: Due) -> Result<()> {
        let world = self.rules.world;
        if !world.is_to_compare(step, due.save || due.last) {
            return Ok(());
        }
        let hash = |values: &[f32]| {
            let mut sum = Sha256Sum::default();
            let bytes =
                |block: &[f32]| block.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
            values.chunks(BLOCK_VALUES).for_each(|block| sum.add(&bytes(block)));
            sum.finish()
        };
        let parameters = self.task.parameters().flat().to_device(&Device::Cpu)?;
        world.compare_replicas(&with_slice(&parameters, hash)?, step)
    }

    /// Where the schedule stands that the run began with.
    fn scheduled(&self, state: &TrainState) -> u64 {
        let planned = self.schedule.total_steps();
        state.horizon.map_or(state.step, |horizon| horizon.scheduled(state.step, planned))
    }

    /// Makes the run shorter, or longer again, where the time that is left asks for it.
    fn look_ahead(&mut self, state: &mut TrainState, clock: &Clock) -> Result<()> {
        let Some(pace) = &mut self.pace else { return Ok(()) };
        let ending_seconds = clock.rates().eval_seconds.unwrap_or(0.0);
        let found = pace.look(state.step, clock.elapsed_seconds(), ending_seconds, state.horizon);
        let Some(horizon) = self.rules.world.agree(found)? else { return Ok(()) };
        let (steps, planned) = (horizon.total_steps(), self.schedule.total_steps());
        if pace.is_news(steps) {
            let text =
                format!("there is time for {steps} of {planned} steps: the learning rate ends with them");
            self.folder.note(&text);
        }
        state.horizon = Some(horizon);
        self.follow(Some(horizon));
        Ok(())
    }

    /// Ends with the steps of `horizon`, or with all.
    fn follow(&mut self, horizon: Option<Horizon>) {
        let total_steps = horizon.map_or(self.schedule.total_steps(), |horizon| horizon.total_steps());
        self.cadence.end_after(total_steps);
        self.folder.end_after(total_steps);
    }

    /// What is due after the last step. No checkpoint is, as long as steps are bad: it would be none to go
    /// back to.
    fn due_after(&self, state: &mut TrainState) -> Due {
        let due = self.cadence.after(state.step);
        let is_good = state.divergence.bad_steps() == 0;
        if due.save && is_good {
            state.divergence.checkpoint_due(state.step);
        }
        Due { save: due.save && (is_good || due.last), ..due }
    }

    /// Goes on with the angles of the next step. Losses of other rows, angles or data are not to be held
    /// against those before.
    fn heed_phase(&self, state: &mut TrainState) {
        self.use_angles(self.phases.theta_at(state.step));
        if self.phases.is_border(state.step) {
            state.divergence.forget_losses();
            self.tell_phase(state.step);
        }
    }

    fn use_angles(&self, global_rope_theta: Option<f64>) {
        if let Some(theta) = global_rope_theta {
            self.task.set_global_rope_theta(theta);
        }
    }

    /// Says what the steps after `steps_done` are made of, where that changes during the run.
    fn tell_phase(&self, steps_done: u64) {
        let Some(text) = self.phases.text_at(steps_done) else { return };
        let mix = self.data.mix(steps_done);
        let share = |(name, share): &(String, f64)| format!("{name} {:.0} %", 100.0 * share);
        let shares: Vec<String> = mix.iter().map(share).collect();
        let of = if shares.is_empty() { String::new() } else { format!(", tokens of {}", shares.join(", ")) };
        self.folder.note(&format!("from step {}: {text}{of}", steps_done + 1));
    }

    /// Evaluates and saves what is due after a step that is not the last one: [`Trainer::finish`] does that.
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

    /// A signal or a clock of any process ends all.
    fn early_end(&self, state: &TrainState, clock: &Clock) -> Result<Option<End>> {
        let rules = &self.rules;
        let out_of_time = || out_of_time(clock.elapsed_seconds(), clock.step_seconds(), rules.budget_seconds);
        let end = match rules.signals.received() {
            Some(signal) => Some(End::Signal(signal)),
            None if state.best.out_of_patience(rules.patience) => Some(End::Patience),
            None => out_of_time().then_some(End::Time),
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
            // The run is over but for its last evaluation: that is what a resume will do.
            end = self.stopped()?;
        }
        if !matches!(end, End::Signal(_)) {
            self.require_finite_end(state)?;
        }
        if !matches!(end, End::Signal(_)) && !self.probe(state)? {
            end = self.stopped()?;
        }
        state.finished = !matches!(end, End::Signal(_));
        self.save(state, true)?;
        Ok(end)
    }

    /// Saves a checkpoint, with the part of each process.
    fn save(&mut self, state: &TrainState, last: bool) -> Result<()> {
        self.stepper.optimizer.gather()?;
        let saved = self.folder.save(self.task, &self.stepper.optimizer, state, last);
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
        // The loss of a step without targets and the norm of one that was skipped are not numbers.
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

    /// Evaluates and takes note of the score; says whether it came to its end.
    fn evaluate(&mut self, state: &mut TrainState, clock: &mut Clock) -> Result<bool> {
        let interrupted = || self.rules.signals.received().is_some();
        // Its batches have sizes of their own, so that the blocks of steps and those of evaluations would add
        // up.
        memory::give_back_freed_blocks();
        let scores = clock.evaluating(|| self.data.evaluate(self.task, &interrupted))?;
        let scores = self.rules.world.all_of(scores)?;
        memory::give_back_freed_blocks();
        let Some(scores) = scores else { return Ok(false) };
        self.unfinite.last_loss = scores.iter().any(|(name, value)| name == "loss" && value.is_infinite());
        let seconds = clock.rates().eval_seconds.map(|seconds| ("perf/eval_seconds".to_string(), seconds));
        let values = scores.iter().map(|(name, value)| (format!("eval/{name}"), *value));
        let values = values.chain(seconds).collect();
        self.folder.record(&Record { step: state.step, epoch: state.epoch, values });
        self.tell_unmeasured(state, &scores);
        state.evaluated(&scores, self.best_metric);
        Ok(true)
    }

    /// Says once that the score which decides over checkpoints and over an early end was not measured.
    fn tell_unmeasured(&self, state: &TrainState, scores: &[(String, f64)]) {
        let is_nan = |(name, value): &(String, f64)| name == self.best_metric && value.is_nan();
        let was_told =
            state.last_eval.iter().any(|(name, value)| name == self.best_metric && value.is_none());
        if scores.iter().any(is_nan) && !was_told {
            self.folder.warn(&format!(
                "`eval_{}` after step {} is not measured: the evaluation has no example or token that tells it, so \
                 it neither ends the run nor makes a checkpoint the best",
                self.best_metric, state.step
            ));
        }
    }

    /// Probes the weights, unless the records of this step have it; says whether it came to its end. A probe
    /// that fails is told and stops nothing. The first process does it for all.
    fn probe(&mut self, state: &TrainState) -> Result<bool> {
        let Some(probe) = self.probe else { return Ok(true) };
        let is_done = if self.folder.writes() { self.probe_here(probe, state)? } else { true };
        // It may take longer than a step is waited for.
        self.rules.world.wait_for_all()?;
        self.rules.world.agree(is_done)
    }

    fn probe_here(&mut self, probe: &dyn Probe, state: &TrainState) -> Result<bool> {
        let known = self.folder.recorded(state.step)?;
        let tag = |name: &String| format!("eval/{name}");
        if probe.names().iter().any(|name| known.contains_key(&tag(name))) {
            let score = |name: &String| Some((name.clone(), *known.get(&tag(name))?));
            self.probed = probe.names().iter().filter_map(score).collect();
            return Ok(true);
        }
        memory::give_back_freed_blocks();
        let start = Instant::now();
        let scores = self.folder.with_model(self.task.parameters(), state.step, |model| probe.scores(model));
        memory::give_back_freed_blocks();
        match scores {
            Ok(None) => return Ok(false),
            Ok(Some(scores)) => {
                let seconds = ("perf/probe_seconds".to_string(), start.elapsed().as_secs_f64());
                let values =
                    scores.iter().map(|(name, value)| (tag(name), *value)).chain([seconds]).collect();
                self.folder.record_aside(&Record { step: state.step, epoch: state.epoch, values });
                self.probed = scores;
            }
            Err(e) => {
                let text = format!("training goes on, but the probe of step {} failed: {e:#}", state.step);
                self.folder.warn(&text);
            }
        }
        Ok(true)
    }
}

/// The next step, its first micro-batch on the way to the device. The others follow while it computes.
fn sent_step(task: &dyn Task, data: &mut dyn Data) -> Result<StepBatches> {
    let mut batches = data.next_step()?;
    batches.micro.first_mut().map_or(Ok(()), |first| task.send(first))?;
    Ok(batches)
}

/// The mean loss since the last record, and where it has several terms each of them.
fn loss_values(terms: &[Term], windows: &mut [LossWindow]) -> Vec<(String, f64)> {
    let means: Vec<(&Term, f64)> = terms.iter().zip(windows.iter_mut().map(LossWindow::take_mean)).collect();
    let all = means.iter().map(|(term, mean)| term.weight * mean).sum();
    let mut values = vec![("train/loss".to_string(), all)];
    if means.len() > 1 {
        values.extend(means.iter().map(|(term, mean)| (format!("train/{}_loss", term.name), *mean)));
    }
    values
}
