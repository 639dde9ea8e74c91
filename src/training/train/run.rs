//! The sequence of every run: lock, resume, fit, build, reserve, train, finish, results.
//!
//! It knows no task: what differs between tasks comes as a [`Kind`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::machine::Machine;
use crate::tasks::Task;
use crate::tasks::run::{Beginning, Data, Inputs, Kind, ModelFolder, Parts, Scores, Setting};
use crate::telemetry::{Outlets, Progress};
use crate::train::average::WeightAverage;
use crate::train::band::Band;
use crate::train::cadence::Cadence;
use crate::train::checkpoint_files::{Resumed, load_checkpoint};
use crate::train::clock::{Clock, Rates};
use crate::train::horizon::{Horizon, Pace};
use crate::train::meter::Meter;
use crate::train::phases::Phases;
use crate::train::probe::Probe;
use crate::train::request::Request;
use crate::train::resume::Found;
use crate::train::rollback::Unfinite;
use crate::train::run_folder::{FINAL, MACHINE, RunFolder, RunFolderOptions};
use crate::train::signals::{Signals, stopped_by};
use crate::train::state::TrainState;
use crate::train::step::Stepper;
use crate::train::trial::Trial;
use crate::train::{
    End, StopRules, Trainer, auto_batch_size, horizon, products, results, resume, room, used,
};
use base::error::Problem;
use base::fs;
use base::fs::FolderLock;
use base::quantity;
use base::scores::Better;
use config::{TrainingConfig, saved, to_yaml};
use data::batches::{BatchPlan, Cursor};
use model::checkpoint::{Checkpoint, CheckpointStore};
use model::distributed::World;
use model::interop::read_folder;
use model::layers::{Gradients, Parameters};
use model::optim::Optimizer;
use model::optim::schedule::Schedule;
use ops::memory;

/// The result of a run.
pub struct Outcome<T, D> {
    /// Why it ended; `None` if it was complete already.
    pub end: Option<End>,
    /// Updates done.
    pub step: u64,
    /// Updates that the configuration plans.
    pub planned_steps: u64,
    /// Scores by the Trainer's names (`eval_loss`, `train_tokens_per_second`, ...).
    pub results: BTreeMap<String, f64>,
    /// Folder of the final model.
    pub model: PathBuf,
    /// The task with the final model, unless a signal ended the run.
    pub task: T,
    /// The data, with the predictions of the final model.
    pub data: D,
}

/// Trains as `request` describes, from its start.
pub fn run<K: Kind, C: Serialize + DeserializeOwned>(
    kind: K,
    request: &Request<'_, C>,
    machine: &Machine,
    progress: &Progress,
    signals: &Signals,
) -> Result<Outcome<K::Task, K::Data>> {
    let (output, world) = (request.output, machine.world);
    let model = output.join(FINAL);
    let lock = lock_run_folder(output, world)?;
    let found = find_start(request, machine, progress)?;
    let parent = request.parent.filter(|_| found.is_none());
    let inputs = require_same_inputs(world, found.as_ref(), parent, log_inputs(kind.inputs()?, progress))?;
    let shapes = kind.shapes()?;
    let training = &world.agree(auto_batch_size::fitted(request.training, &shapes, machine, progress)?)?;
    room::require_work(training, world, progress)?;
    let plan = BatchPlan::new(training, request.max_seq_length);
    let phases = Phases::new(training, request.max_seq_length, shapes.model.encoder.global_rope_theta);
    room::require_memory(plan.most_tokens_at_once(), training, &shapes, machine, progress)?;
    // From here on every step needs the memory that the step before it has freed.
    let _keeping = memory::keep_freed_blocks();
    let is_beginning = found.is_none() && parent.is_none();
    let Parts { task, mut data, total_steps: planned_steps, folders, best } =
        built(kind, training, request.seed, is_beginning, machine, progress, signals)?;
    let (best_metric, better) = best_score(training, best, &data.score_names())?;
    let mut stepper = stepper(task.parameters(), training, machine, request.seed)?;
    let mut average = WeightAverage::new(task.parameters(), training)?;
    let mut state = TrainState::new(Cursor::default(), better);
    if let Some(found) = &found {
        state = found.resumed.state.clone();
        let results = earlier_results(output, progress);
        let is_at_end = found.is_complete || state.step >= planned_steps;
        let is_complete = world.agree(is_at_end && results::are_whole(&results))?;
        if let Some(whole) = is_complete.then(|| whole_final(output, progress)).flatten() {
            load_checkpoint(&whole, &folders, task.parameters())?;
            use_rope_base_of(&model, &phases, &task)?;
            let end = evaluated_again(world, &mut data, &task, signals)?;
            return Ok(Outcome { end, step: state.step, planned_steps, results, model, task, data });
        }
        found.resumed.restore(&folders, task.parameters(), average.as_mut(), &mut stepper.optimizer)?;
        state.finished = found.is_complete;
        let place = found.resumed.checkpoint.path().display();
        progress.note(&format!("resuming after step {} of `{place}`", state.step));
    }
    if let Some(parent) = parent {
        parent.restore(&folders, task.parameters(), average.as_mut(), &mut stepper.optimizer)?;
        state = parent.state.of_another_run(better);
    }
    let limit_seconds = horizon::limit_seconds(request.run, state.elapsed_seconds, SystemTime::now())?;
    state.horizon = horizon_of(request.trial, &state, planned_steps, limit_seconds.is_some());
    auto_batch_size::reserve(plan.most_tokens_at_once(), training, &shapes, machine, progress)?;
    write_beginning(output, request.config, machine)?;
    let options = RunFolderOptions {
        path: output,
        folders,
        config: saved(request.config),
        inputs,
        training,
        total_steps: planned_steps,
        phases: phases.clone(),
        first_step: state.step,
        outlets: Outlets::of(request.run, &saved(request.config), request.seed)?,
        world,
        band: request.loss_band.cloned().map(Band::new),
    };
    let mut folder = RunFolder::open(options, found.as_ref().map(|found| &found.resumed), progress)?;
    folder.require_space(task.parameters(), training, request.run, data.finish_bytes())?;
    if let Some(planner) = task.planner() {
        data.plan_with(planner);
    }
    data.start(Beginning { cursor: state.cursor.clone(), step: state.step, total_steps: planned_steps })?;
    let mut trainer = Trainer {
        task: &task,
        stepper,
        average,
        schedule: Schedule::new(training, planned_steps),
        cadence: Cadence::new(training, planned_steps).probing(request.probe.map(Probe::every)),
        rules: stop_rules(training, limit_seconds, machine, signals)?.pausing(request.trial, planned_steps),
        pace: limit_seconds.map(|seconds| Pace::new(planned_steps, seconds)),
        phases,
        loss_spike_threshold: training.loss_spike_threshold,
        best_metric: &best_metric,
        keep_best: training.load_best_model_at_end,
        data: &mut data,
        probe: request.probe,
        probed: Scores::new(),
        unfinite: Unfinite::default(),
        meter: Meter::new(machine, request.precision.tf32, request.run.usd_per_hour),
        folder: &mut folder,
    };
    let (trained, probed) = (trainer.run(&mut state), trainer.probed);
    report_exchange(world, progress);
    let (mut end, rates) = trained.map_err(|e| auto_batch_size::explain(e, training, &shapes, machine))?;
    let mut results = results_at_pause(end, &state, rates);
    if end.is_final() {
        match finish(training, &task, &mut folder, &state, &mut data, world, signals)? {
            Some(scored) => {
                results = scored.results(&state, rates, probed, planned_steps, request.run.usd_per_hour);
                if world.is_first() {
                    results::save(output, &results)?;
                }
            }
            None => end = End::by_signal(world, signals)?,
        }
    }
    // No process ends before rank 0 has written everything: an ending process may end the others.
    drop((folder, lock));
    world.wait_for_all()?;
    Ok(Outcome { end: Some(end), step: state.step, planned_steps, results, model, task, data })
}

/// Finds the checkpoint that a run resumes from, and uses the algorithms of that run from here on. A new run
/// in a folder with files of another one is an error.
fn find_start<C: Serialize + DeserializeOwned>(
    request: &Request<'_, C>,
    machine: &Machine,
    progress: &Progress,
) -> Result<Option<Found>> {
    let Request { start, output, config, training, .. } = request;
    let found = resume::find(start, &CheckpointStore::new(output), *config, progress)?;
    if let Some(found) = &found {
        products::use_stored(&fs::parent_of(found.resumed.checkpoint.path()), machine, progress)?;
    }
    if machine.world.is_first() && found.is_none() {
        used::refuse(start, output, *config, training.save_steps, progress)?;
    }
    Ok(found)
}

/// Builds the parts of a run, and checks that its model can be read back. From here on the peak of memory is
/// measured: that of training, without its preparation.
fn built<K: Kind>(
    kind: K,
    training: &TrainingConfig,
    seed: u64,
    is_beginning: bool,
    machine: &Machine,
    progress: &Progress,
    signals: &Signals,
) -> Result<Parts<K::Task, K::Data>> {
    // Several processes end together, at the first step.
    let setting = Setting {
        training,
        machine,
        seed,
        progress,
        is_beginning,
        is_interrupted: &|| machine.world.size == 1 && signals.received().is_some(),
    };
    let parts = kind.build(setting).map_err(|e| {
        let signal = signals.received().filter(|_| machine.world.size == 1);
        signal.map_or(e, |signal| stopped_by(signal, "no step is trained yet").into())
    })?;
    parts.folders.iter().try_for_each(ModelFolder::require_readable)?;
    memory::give_back_freed_blocks();
    fs::forget_peak();
    Ok(parts)
}

/// The plan of a run that begins or resumes in `state`; `is_limited` is true if it has a time limit.
fn horizon_of(
    trial: Option<Trial>,
    state: &TrainState,
    planned_steps: u64,
    is_limited: bool,
) -> Option<Horizon> {
    match trial {
        Some(trial) => trial.horizon(planned_steps),
        None => state.horizon?.resumed(state.step, planned_steps, is_limited),
    }
}

/// The results of a run that pauses; empty at any other end.
fn results_at_pause(end: End, state: &TrainState, rates: Rates) -> BTreeMap<String, f64> {
    match end {
        End::Pause => results::of_run(state, rates, state.last_scores(), []),
        _ => BTreeMap::new(),
    }
}

/// The results of an earlier sitting; empty if they cannot be read, and then they are computed again.
fn earlier_results(output: &Path, progress: &Progress) -> BTreeMap<String, f64> {
    results::read(output).unwrap_or_else(|e| {
        progress.warn(&format!("{e:#}; the results are made again"));
        BTreeMap::new()
    })
}

/// Prints the time spent in exchange with other processes.
fn report_exchange(world: World, progress: &Progress) {
    if let Some((seconds, all)) = world.exchange_seconds() {
        let rank = world.rank;
        progress.note(&format!(
            "rank {rank} has talked to others for {seconds:.1} s of a processor, in {all:.1} s"
        ));
    }
}

/// Rank 0 locks the run folder; the others wait.
fn lock_run_folder(output: &Path, world: World) -> Result<Option<FolderLock>> {
    let lock = world.is_first().then(|| FolderLock::take(output)).transpose()?;
    world.wait_for_all()?;
    Ok(lock)
}

/// Returns an error if the inputs are not those with which the run began, or if the processes resume from
/// different steps or have different inputs.
fn require_same_inputs(
    world: World,
    found: Option<&Found>,
    parent: Option<&Resumed>,
    inputs: Inputs,
) -> Result<Inputs> {
    resume::agree_on_inputs(found, parent, &inputs)?;
    let step = found.map_or(0, |found| found.resumed.state.step);
    let named = inputs.iter().map(|(key, hash)| (key.as_str(), hash.clone()));
    world.require_same(&named.chain([("the checkpoint", step.to_string())]).collect::<Vec<_>>())?;
    Ok(inputs)
}

/// Evaluates a complete run again if what follows needs the evaluation; returns the end if a signal
/// interrupted it.
fn evaluated_again(
    world: World,
    data: &mut dyn Data,
    task: &dyn Task,
    signals: &Signals,
) -> Result<Option<End>> {
    let mut end = None;
    if data.wants_evaluation() {
        let scores = data.evaluate(task, &|| signals.received().is_some())?;
        let mut is_cut_off = world.all_of(scores)?.is_none();
        if !is_cut_off {
            let tested = data.test(task, &|| signals.received().is_some())?;
            is_cut_off = world.all_of(tested)?.is_none();
        }
        end = is_cut_off.then(|| End::by_signal(world, signals)).transpose()?;
    }
    world.wait_for_all()?;
    Ok(end)
}

/// Rank 0 writes the configuration and the machine of a run.
fn write_beginning<C: Serialize>(output: &Path, config: &C, machine: &Machine) -> Result<()> {
    if !machine.world.is_first() {
        return Ok(());
    }
    fs::write_bytes(&output.join("config.yaml"), to_yaml(config).as_bytes())?;
    fs::write_bytes(&output.join(MACHINE), format!("{:#}\n", machine.to_json()).as_bytes())?;
    // Results are written last, so a run without them is not complete.
    results::forget(output)
}

/// Logs the hashes of the inputs with `-v`, and returns the inputs.
fn log_inputs(inputs: Inputs, progress: &Progress) -> Inputs {
    for (key, hash) in &inputs {
        progress.detail(&format!("`{key}`: hash {hash}"));
    }
    inputs
}

/// The score that decides which evaluation is best, and its direction: that of the configuration, otherwise
/// that of the task.
///
/// # Errors
/// Returns an error if the configuration names a score that is not among `names`.
pub fn best_score(
    training: &TrainingConfig,
    (own, better): (&str, Better),
    names: &[String],
) -> Result<(String, Better), Problem> {
    let Some(given) = &training.metric_for_best_model else { return Ok((own.to_string(), better)) };
    let name = given.strip_prefix("eval_").unwrap_or(given);
    if names.iter().any(|known| known == name) {
        return Ok((name.to_string(), Better::of(name)));
    }
    let known: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    Err(Problem::usage(format!("is `{given}`, a score that evaluations of this run do not write"))
        .at("training.metric_for_best_model")
        .hint(format!("there are {}", known.join(", "))))
}

/// The final model of a complete run; if it is damaged or gone, a warning, and it is made again from the last
/// checkpoint.
fn whole_final(output: &Path, progress: &Progress) -> Option<Checkpoint> {
    match Checkpoint::open(&output.join(FINAL)) {
        Ok(model) => Some(model),
        Err(e) => {
            progress.warn(&format!("{e:#}; the final model is made again from the last checkpoint"));
            None
        }
    }
}

/// Sets the RoPE base to that of a model folder, if the phases of the run change it.
fn use_rope_base_of(model: &Path, phases: &Phases, task: &dyn Task) -> Result<()> {
    if phases.theta_at(0).is_some() {
        task.set_global_rope_theta(read_folder(model)?.config.encoder.global_rope_theta);
    }
    Ok(())
}

/// The scores of a final model.
struct Scored {
    /// On the evaluation data, without `eval_`.
    evaluated: Scores,
    /// On the test data, with `test_`.
    tested: Scores,
}

impl Scored {
    /// The results of the run with these scores and those of the probes.
    fn results(
        self,
        state: &TrainState,
        rates: Rates,
        probed: Scores,
        planned_steps: u64,
        usd_per_hour: Option<f64>,
    ) -> BTreeMap<String, f64> {
        let limits = results::of_limits(state, planned_steps, usd_per_hour);
        let others = self.tested.into_iter().chain(limits);
        results::of_run(state, rates, self.evaluated.into_iter().chain(probed), others)
    }
}

/// Writes the final model (the best one if configured) and returns its scores; `None` if a signal interrupted
/// it.
fn finish(
    training: &TrainingConfig,
    task: &dyn Task,
    folder: &mut RunFolder,
    state: &TrainState,
    data: &mut dyn Data,
    world: World,
    signals: &Signals,
) -> Result<Option<Scored>> {
    let mut scores = state.last_scores();
    let mut trained_until = state.step;
    let best = state.best.step().filter(|&step| training.load_best_model_at_end && step != state.step);
    let mut is_loaded = false;
    match best.map(|step| folder.checkpoint(step)) {
        None => {}
        Some(Ok(checkpoint)) => {
            load_checkpoint(&checkpoint, folder.folders(), task.parameters())?;
            trained_until = checkpoint.step();
            if let Some(theta) = folder.phases().theta_of(trained_until) {
                task.set_global_rope_theta(theta);
            }
            is_loaded = true;
        }
        // The checkpoint does not exist if `load_best_model_at_end` was set only after that evaluation.
        Some(Err(e)) => folder
            .warn(&format!("the best checkpoint cannot be used, so the last model is the final one: {e:#}")),
    }
    let interrupted = || signals.received().is_some();
    if is_loaded || data.wants_evaluation() {
        memory::give_back_freed_blocks();
        let mut clock = Clock::new(0.0);
        let found = clock.evaluating(|| data.evaluate(task, &interrupted))?;
        let Some(found) = world.all_of(found)? else { return Ok(None) };
        scores = found;
        scores.extend(clock.rates().eval_seconds.map(|seconds| ("runtime".to_string(), seconds)));
    }
    let tested = data.test(task, &interrupted)?;
    let Some(tested) = world.all_of(tested)? else { return Ok(None) };
    // The following code allocates blocks of other sizes.
    memory::give_back_freed_blocks();
    folder.finish(task.parameters(), state.step, trained_until, data.model_files())?;
    let more = if folder.writes() { data.finish(&folder.path, &interrupted)? } else { Some(Scores::new()) };
    let Some(more) = world.all_of(more)? else { return Ok(None) };
    scores.extend(more);
    Ok(Some(Scored { evaluated: scores, tested }))
}

/// Returns a stepper with fresh moments and no gradients.
pub fn stepper(
    parameters: &Parameters,
    training: &TrainingConfig,
    machine: &Machine,
    seed: u64,
) -> Result<Stepper> {
    let mut gradients = Gradients::with_weights_in(parameters, machine.policy.weight_gradients)?;
    let sums = machine.world.sums_meanwhile();
    if let Some(sums) = sums.clone() {
        gradients.tell(move |range, values| sums.add(range, values).map_err(candle_core::Error::wrap));
    }
    Ok(Stepper {
        optimizer: Optimizer::among(machine.world, parameters, training, gradients.places())?,
        gradients,
        max_grad_norm: training.max_grad_norm,
        seed,
        loss_scale: machine.policy.loss_scale(),
        world: machine.world,
        sums,
    })
}

/// Returns the rules for an early end.
pub(super) fn stop_rules(
    training: &TrainingConfig,
    limit_seconds: Option<f64>,
    machine: &Machine,
    signals: &Signals,
) -> Result<StopRules> {
    let budget = training
        .max_train_time
        .as_deref()
        .map(quantity::parse_duration)
        .transpose()
        .map_err(|e| Problem::usage(e.to_string()).at("training.max_train_time"))?;
    Ok(StopRules {
        pause_step: None,
        patience: training.early_stopping_patience,
        budget_seconds: budget
            .as_ref()
            .map(Duration::as_secs_f64)
            .into_iter()
            .chain(limit_seconds)
            .reduce(f64::min),
        signals: signals.clone(),
        world: machine.world,
    })
}
