//! The skeleton of every run: lock, resume, fit, build, reserve, train, finish, results.
//!
//! It knows no task: what differs comes as a [`Kind`].

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::SystemTime;

use anyhow::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::batches::BatchPlan;
use crate::batches::Cursor;
use crate::checkpoint::Checkpoint;
use crate::checkpoint::CheckpointStore;
use crate::config::LossBand;
use crate::config::PrecisionConfig;
use crate::config::RunSection;
use crate::config::TrainingConfig;
use crate::config::saved;
use crate::config::to_yaml;
use crate::distributed::World;
use crate::error::Problem;
use crate::fs;
use crate::fs::FolderLock;
use crate::interop::read_folder;
use crate::layers::Gradients;
use crate::layers::Parameters;
use crate::machine::Machine;
use crate::ops::memory;
use crate::optim::Optimizer;
use crate::optim::schedule::Schedule;
use crate::quantity;
use crate::scores::Better;
use crate::tasks::Task;
use crate::tasks::run::Beginning;
use crate::tasks::run::Data;
use crate::tasks::run::Inputs;
use crate::tasks::run::Kind;
use crate::tasks::run::ModelFolder;
use crate::tasks::run::Parts;
use crate::tasks::run::Scores;
use crate::tasks::run::Setting;
use crate::telemetry::Outlets;
use crate::telemetry::Progress;
use crate::train::End;
use crate::train::StopRules;
use crate::train::Trainer;
use crate::train::band::Band;
use crate::train::batch_size;
use crate::train::cadence::Cadence;
use crate::train::clock::Clock;
use crate::train::horizon;
use crate::train::horizon::Pace;
use crate::train::meter::Meter;
use crate::train::phases::Phases;
use crate::train::probe::Probe;
use crate::train::results;
use crate::train::resume;
use crate::train::resume::Found;
use crate::train::resume::Start;
use crate::train::rollback::Unfinite;
use crate::train::room;
use crate::train::run_folder::FINAL;
use crate::train::run_folder::MACHINE;
use crate::train::run_folder::RunFolder;
use crate::train::run_folder::RunFolderOptions;
use crate::train::saved::Resumed;
use crate::train::saved::load_checkpoint;
use crate::train::signals::Signals;
use crate::train::state::TrainState;
use crate::train::step::Stepper;
use crate::train::used;

/// The configuration of a run, whole and by its sections.
pub struct Request<'a, C> {
    /// All of it, as it is saved and compared on resume.
    pub config: &'a C,
    /// Where, and what of the machine is asked for.
    pub run: &'a RunSection,
    /// Batch, optimizer, schedule, cadence.
    pub training: &'a TrainingConfig,
    /// Precision.
    pub precision: &'a PrecisionConfig,
    /// Tokens of a row where no phase says otherwise.
    pub max_seq_length: usize,
    /// Folder of this run.
    pub output: &'a Path,
    /// Seed of this run.
    pub seed: u64,
    /// Where it starts.
    pub start: &'a Start,
    /// What else is measured of the weights while they are trained.
    pub probe: Option<&'a dyn Probe>,
    /// Where its loss is expected.
    pub loss_band: Option<&'a LossBand>,
    /// The checkpoint of another run that it goes on from where it has none of its own.
    pub parent: Option<&'a Resumed>,
}

/// What a run came to.
pub struct Outcome<T, D> {
    /// Why it ended; `None` when it was complete already.
    pub end: Option<End>,
    /// Updates done.
    pub step: u64,
    /// Scores by the Trainer's names (`eval_loss`, `train_tokens_per_second`, ...).
    pub results: BTreeMap<String, f64>,
    /// Folder of the final model.
    pub model: PathBuf,
    /// The final model, unless a signal ended the run.
    pub task: T,
    /// The data, with what the final model predicted.
    pub data: D,
}

/// Trains as `request` says, from where it says.
pub fn run<K: Kind, C: Serialize + DeserializeOwned>(
    kind: K,
    request: &Request<'_, C>,
    machine: &Machine,
    progress: &Progress,
    signals: &Signals,
) -> Result<Outcome<K::Task, K::Data>> {
    let (output, world) = (request.output, machine.world);
    let held = hold(output, world)?;
    let found = find_start(request, world, progress)?;
    let parent = request.parent.filter(|_| found.is_none());
    let inputs = begin_alike(world, found.as_ref(), parent, told(kind.inputs()?, progress))?;
    let shapes = kind.shapes()?;
    let training = &world.agree(batch_size::fitted(request.training, &shapes, machine, progress)?)?;
    room::require_work(training, world, progress)?;
    let plan = BatchPlan::new(training, request.max_seq_length);
    let phases = Phases::new(training, request.max_seq_length, shapes.model.encoder.global_rope_theta);
    room::require_memory(plan.most_tokens_at_once(), training, &shapes, machine, progress)?;
    // From here to the end every step needs the memory of the one before.
    let _keeping = memory::keep_freed_blocks();
    let is_beginning = found.is_none() && parent.is_none();
    let Parts { task, mut data, total_steps, folders, best } =
        built(kind, Setting { training, machine, seed: request.seed, progress, is_beginning })?;
    // What is told of memory is that of training: not what preparing it took.
    memory::give_back_freed_blocks();
    fs::forget_peak();
    let (best_metric, better) = best_score(training, best, &data.score_names())?;
    let mut stepper = stepper(task.parameters(), training, machine, request.seed)?;
    let mut state = TrainState::new(Cursor::default(), better);
    if let Some(found) = &found {
        state = found.resumed.state.clone();
        let results = earlier_results(output, progress);
        let is_at_end = found.is_complete || state.step >= total_steps;
        let is_complete = world.agree(is_at_end && results::are_whole(&results))?;
        if let Some(model) = is_complete.then(|| whole_final(output, progress)).flatten() {
            load_checkpoint(&model, &folders, task.parameters())?;
            use_angles_of(&output.join(FINAL), &phases, &task)?;
            let end = evaluated_again(world, &mut data, &task, signals)?;
            return Ok(Outcome { end, step: state.step, results, model: output.join(FINAL), task, data });
        }
        found.resumed.restore(&folders, task.parameters(), &mut stepper.optimizer)?;
        state.finished = found.is_complete;
        let place = found.resumed.checkpoint.path().display();
        progress.note(&format!("resuming after step {} of `{place}`", state.step));
    }
    if let Some(parent) = parent {
        parent.restore(&folders, task.parameters(), &mut stepper.optimizer)?;
        state = parent.state.of_another_run(better);
    }
    let limit_seconds = horizon::limit_seconds(request.run, state.elapsed_seconds, SystemTime::now())?;
    state.horizon =
        state.horizon.and_then(|plan| plan.resumed(state.step, total_steps, limit_seconds.is_some()));
    batch_size::reserve(plan.most_tokens_at_once(), training, &shapes, machine, progress)?;
    write_beginning(output, request.config, machine)?;
    let options = RunFolderOptions {
        path: output,
        folders,
        config: saved(request.config),
        inputs,
        training,
        total_steps,
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
    data.start(Beginning { cursor: state.cursor.clone(), step: state.step, total_steps })?;
    let mut trainer = Trainer {
        task: &task,
        stepper,
        schedule: Schedule::new(training, total_steps),
        cadence: Cadence::new(training, total_steps).probing(request.probe.map(Probe::every)),
        rules: stop_rules(training, limit_seconds, machine, signals)?,
        pace: limit_seconds.map(|seconds| Pace::new(total_steps, seconds)),
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
    tell_exchange(world, progress);
    let (mut end, rates) = trained.map_err(|e| batch_size::explain(e, training, &shapes, machine))?;
    let mut results = BTreeMap::new();
    if !matches!(end, End::Signal(_)) {
        match finish(training, &task, &mut folder, &state, &mut data, (output, world, signals))? {
            Some(scores) => {
                results = results::of_run(&state, rates, scores.into_iter().chain(probed));
                if world.is_first() {
                    results::save(output, &results)?;
                }
            }
            None => end = End::by_signal(world, signals)?,
        }
    }
    // A process that ends may end all: none does before the first one has written what there is.
    drop((folder, held));
    world.wait_for_all()?;
    Ok(Outcome { end: Some(end), step: state.step, results, model: output.join(FINAL), task, data })
}

/// Finds the checkpoint that a run resumes from. A new run in a folder with files of another one is an error.
fn find_start<C: Serialize + DeserializeOwned>(
    request: &Request<'_, C>,
    world: World,
    progress: &Progress,
) -> Result<Option<Found>> {
    let Request { start, output, config, training, .. } = request;
    let found = resume::find(start, &CheckpointStore::new(output), *config, progress)?;
    if world.is_first() && found.is_none() {
        used::refuse(start, output, *config, training.save_steps, progress)?;
    }
    Ok(found)
}

/// The parts of a run, whose model can be read again.
fn built<K: Kind>(kind: K, setting: Setting<'_>) -> Result<Parts<K::Task, K::Data>> {
    let parts = kind.build(setting)?;
    parts.folders.iter().try_for_each(ModelFolder::require_readable)?;
    Ok(parts)
}

/// The results of an earlier sitting; none where they cannot be read, and then they are made again.
fn earlier_results(output: &Path, progress: &Progress) -> BTreeMap<String, f64> {
    results::read(output).unwrap_or_else(|e| {
        progress.warn(&format!("{e:#}; the results are made again"));
        BTreeMap::new()
    })
}

/// Says what talking to other processes has taken.
fn tell_exchange(world: World, progress: &Progress) {
    if let Some((seconds, all)) = world.exchange_seconds() {
        let rank = world.rank;
        progress.note(&format!(
            "rank {rank} has talked to others for {seconds:.1} s of a processor, in {all:.1} s"
        ));
    }
}

/// The folder, which the first process holds for all.
fn hold(output: &Path, world: World) -> Result<Option<FolderLock>> {
    let held = world.is_first().then(|| FolderLock::take(output)).transpose()?;
    world.wait_for_all()?;
    Ok(held)
}

/// Refuses to go on with other data than before, and processes that would go on from other places or with
/// other data than the first one.
fn begin_alike(
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

/// The evaluation of a complete run, where what comes after it needs one; how it was cut off, if it was.
fn evaluated_again(
    world: World,
    data: &mut dyn Data,
    task: &dyn Task,
    signals: &Signals,
) -> Result<Option<End>> {
    let mut end = None;
    if data.wants_evaluation() {
        let scores = data.evaluate(task, &|| signals.received().is_some())?;
        let is_cut_off = world.all_of(scores)?.is_none();
        end = is_cut_off.then(|| End::by_signal(world, signals)).transpose()?;
    }
    world.wait_for_all()?;
    Ok(end)
}

/// Writes what a run was begun with, in the process that writes.
fn write_beginning<C: Serialize>(output: &Path, config: &C, machine: &Machine) -> Result<()> {
    if !machine.world.is_first() {
        return Ok(());
    }
    fs::write_bytes(&output.join("config.yaml"), to_yaml(config).as_bytes())?;
    fs::write_bytes(&output.join(MACHINE), format!("{:#}\n", machine.to_json()).as_bytes())?;
    // Written last when a run is complete: where they are missing, it is not.
    results::forget(output)
}

/// The same, with `-v` said.
fn told(inputs: Inputs, progress: &Progress) -> Inputs {
    for (key, hash) in &inputs {
        progress.detail(&format!("`{key}`: hash {hash}"));
    }
    inputs
}

/// The score that decides which evaluation is best, and which way is better: the configuration's, else that
/// of the task.
fn best_score(
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

/// The final model of a complete run; where it is damaged or gone, it is made again from the checkpoint.
fn whole_final(output: &Path, progress: &Progress) -> Option<Checkpoint> {
    match Checkpoint::open(&output.join(FINAL)) {
        Ok(model) => Some(model),
        Err(e) => {
            progress.warn(&format!("{e:#}; the final model is made again from the last checkpoint"));
            None
        }
    }
}

/// Turns queries and keys as the model of a folder does, where the phases of the run change that.
fn use_angles_of(model: &Path, phases: &Phases, task: &dyn Task) -> Result<()> {
    if phases.theta_at(0).is_some() {
        task.set_global_rope_theta(read_folder(model)?.config.encoder.global_rope_theta);
    }
    Ok(())
}

/// Writes the final model, the best one's weights if that is wanted, and gives its scores; `None` when a
/// signal came in.
fn finish(
    training: &TrainingConfig,
    task: &dyn Task,
    folder: &mut RunFolder,
    state: &TrainState,
    data: &mut dyn Data,
    (output, world, signals): (&Path, World, &Signals),
) -> Result<Option<Scores>> {
    let known = |(name, value): &(String, Option<f64>)| (name.clone(), value.unwrap_or(f64::NAN));
    let mut scores: Scores = state.last_eval.iter().map(known).collect();
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
        // It was never saved where `load_best_model_at_end` was set only after it.
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
    // What follows has sizes of its own once more.
    memory::give_back_freed_blocks();
    folder.finish(task.parameters(), state.step, trained_until, data.model_files())?;
    let more = if folder.writes() { data.finish(output, &interrupted)? } else { Some(Scores::new()) };
    let Some(more) = world.all_of(more)? else { return Ok(None) };
    scores.extend(more);
    Ok(Some(scores))
}

/// The step of a run, with fresh moments and no gradients.
pub fn stepper(
    parameters: &Parameters,
    training: &TrainingConfig,
    machine: &Machine,
    seed: u64,
) -> Result<Stepper> {
    let (mut gradients, sums) = (Gradients::new(parameters)?, machine.world.sums_meanwhile());
    if let Some(sums) = sums.clone() {
        gradients.tell(move |range, values| sums.add(range, values).map_err(candle_core::Error::wrap));
    }
    Ok(Stepper {
        optimizer: Optimizer::among(machine.world, parameters, training)?,
        gradients,
        max_grad_norm: training.max_grad_norm,
        seed,
        loss_scale: machine.policy.loss_scale(),
        world: machine.world,
        sums,
    })
}

/// When to end early.
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
