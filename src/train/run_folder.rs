//! Where a run leaves what it makes: checkpoints, records, the final model; the same for every task.
//!
//! It knows which parts a checkpoint has, but not what is trained.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;
use candle_core::Tensor;
use serde_json::Value;

use crate::checkpoint::Checkpoint;
use crate::checkpoint::CheckpointStore;
use crate::checkpoint::Part;
use crate::checkpoint::Retention;
use crate::checkpoint::Snapshot;
use crate::checkpoint::write_sealed;
use crate::config::TrainingConfig;
use crate::distributed::World;
use crate::error::Problem;
use crate::fs;
use crate::layers::Parameters;
use crate::models::memory::checkpoint_bytes;
use crate::optim::Optimizer;
use crate::tasks::Task;
use crate::tasks::run::Inputs;
use crate::tasks::run::ModelFolder;
use crate::telemetry::MetricsLog;
use crate::telemetry::Progress;
use crate::telemetry::Record;
use crate::telemetry::Sink;
use crate::telemetry::Sinks;
use crate::telemetry::TensorBoard;
use crate::telemetry::TrainerState;
use crate::telemetry::TrainingProgress;
use crate::train::state::TrainState;

/// Weights of the model inside a checkpoint.
pub const MODEL: &str = "model.safetensors";
const OPTIMIZER: &str = "trainer/optimizer.safetensors";
const STATE: &str = "trainer/state.json";
const INPUTS: &str = "trainer/inputs.json";
/// The configuration of the run inside a checkpoint.
pub const CONFIG: &str = "trainer/config.json";
const TRAINER_STATE: &str = "trainer_state.json";

/// Name of the folder of the final model inside a run folder.
pub const FINAL: &str = "final";

/// How a run folder is opened.
pub struct RunFolderOptions<'a> {
    /// The folder.
    pub path: &'a Path,
    /// The model folders that a checkpoint holds.
    pub folders: Vec<ModelFolder>,
    /// The resolved configuration.
    pub config: Value,
    /// Hashes of what the run learns from.
    pub inputs: Inputs,
    /// Cadence and retention.
    pub training: &'a TrainingConfig,
    /// Updates in all.
    pub total_steps: u64,
    /// Whether to write TensorBoard events.
    pub tensorboard: bool,
    /// The processes of the run, of which the first one writes.
    pub world: World,
}

/// The output side of a run.
pub struct RunFolder {
    path: PathBuf,
    store: CheckpointStore,
    folders: Vec<ModelFolder>,
    config: Value,
    inputs: Inputs,
    limit: usize,
    progress: Progress,
    bar: TrainingProgress,
    sinks: Sinks,
    trainer_state: TrainerState,
    world: World,
}

impl RunFolder {
    /// Opens the folder for a run that starts afresh, or goes on after `resumed`.
    pub fn open(
        options: RunFolderOptions<'_>,
        resumed: Option<&Resumed>,
        progress: &Progress,
    ) -> Result<Self> {
        let RunFolderOptions { path, folders, config, inputs, training, total_steps, tensorboard, world } =
            options;
        let step = resumed.map(|resumed| resumed.state.step);
        let mut trainer_state = resumed.map_or_else(TrainerState::new, |resumed| resumed.log.clone());
        trainer_state.max_steps = total_steps;
        trainer_state.num_train_epochs = training.num_train_epochs.ceil() as u64;
        trainer_state.train_batch_size = Some(training.rows_at_once() as u64);
        (trainer_state.logging_steps, trainer_state.eval_steps, trainer_state.save_steps) =
            (training.logging_steps, training.eval_steps, training.save_steps);
        let mut sinks = Sinks::new();
        if world.is_first() {
            sinks.add(MetricsLog::open(&path.join("metrics.jsonl"), step)?);
        }
        if tensorboard && world.is_first() {
            sinks.add(TensorBoard::create(&path.join("runs"), step)?);
        }
        Ok(Self {
            path: path.to_path_buf(),
            store: CheckpointStore::new(path),
            folders,
            world,
            config,
            inputs,
            limit: training.save_total_limit,
            progress: progress.clone(),
            bar: progress.training(total_steps, step.unwrap_or(0)),
            sinks,
            trainer_state,
        })
    }

    /// Whether this is the process that writes.
    pub fn writes(&self) -> bool {
        self.world.is_first()
    }

    /// Refuses a disk that cannot hold two checkpoints of a model with these parameters, and `more_bytes` at
    /// the end of the run.
    pub fn require_space(&self, parameters: &Parameters, more_bytes: u64) -> Result<()> {
        let checkpoints = 2 * checkpoint_bytes(parameters.layout().len() as u64);
        self.store.require_space(checkpoints.saturating_add(more_bytes))
    }

    /// Moves the progress bar.
    pub fn step(&self, step: u64) {
        self.bar.step(step);
    }

    /// Hands a record to every sink; a sink that fails is told once and stops nothing.
    pub fn record(&mut self, record: &Record) {
        self.trainer_state.observe(record);
        let mut warnings = self.sinks.write(record);
        warnings.extend(self.bar.write(record).err().map(|e| format!("{e:#}")));
        for warning in &warnings {
            self.progress.warn(warning);
        }
    }

    /// Shows a warning.
    pub fn warn(&self, text: &str) {
        self.progress.warn(text);
    }

    /// Saves `checkpoint-<step>`.
    pub fn save(&mut self, task: &dyn Task, optimizer: &Optimizer, state: &TrainState) -> Result<()> {
        let best_step = state.best.step();
        self.trainer_state.global_step = state.step;
        self.trainer_state.epoch = state.epoch;
        self.trainer_state.num_input_tokens_seen = state.num_input_tokens_seen;
        self.trainer_state.total_flos = state.total_flos;
        self.trainer_state.best_metric = state.best.score();
        self.trainer_state.best_global_step = best_step;
        self.trainer_state.best_model_checkpoint =
            best_step.map(|step| self.store.path_of(step).display().to_string());
        if !self.writes() {
            return Ok(());
        }
        let mut parts = vec![
            (OPTIMIZER.to_string(), Part::Tensors(optimizer.snapshot()?)),
            (STATE.to_string(), Part::Json(state.to_json()?)),
            (CONFIG.to_string(), Part::Json(self.config.clone())),
            (INPUTS.to_string(), Part::Json(serde_json::to_value(&self.inputs)?)),
            (TRAINER_STATE.to_string(), Part::Json(self.trainer_state.to_json())),
        ];
        parts.extend(self.model_parts(task.parameters())?);
        let keep = Retention { limit: self.limit, best_step };
        // A run that goes on from here after a power cut has the records of all steps before.
        for warning in self.sinks.sync() {
            self.progress.warn(&warning);
        }
        for warning in self.store.save(&Snapshot { step: state.step, parts }, keep)? {
            self.progress.warn(&warning);
        }
        Ok(())
    }

    /// All files of the model folders.
    fn model_parts(&self, parameters: &Parameters) -> Result<Vec<(String, Part)>> {
        let named = parameters.named()?;
        let mut parts = Vec::new();
        for folder in &self.folders {
            parts.push((place(folder, MODEL), Part::Tensors(tensors_of(folder, &named)?)));
            let files = folder.files.iter();
            parts.extend(files.map(|(name, bytes)| (place(folder, name), Part::Bytes(bytes.clone()))));
        }
        Ok(parts)
    }

    /// The model folders that a checkpoint holds.
    pub fn folders(&self) -> &[ModelFolder] {
        &self.folders
    }

    /// The checkpoint of `step`, verified.
    pub fn checkpoint(&self, step: u64) -> Result<Checkpoint> {
        Checkpoint::open(&self.store.path_of(step))
    }

    /// Ends the sinks and writes the final model folder of `step`, which transformers loads, with its hashes.
    pub fn finish(&mut self, parameters: &Parameters, step: u64) -> Result<()> {
        let mut warnings = self.sinks.finish();
        warnings.extend(self.bar.finish().err().map(|e| format!("{e:#}")));
        for warning in &warnings {
            self.progress.warn(warning);
        }
        if !self.writes() {
            return Ok(());
        }
        let target = self.path.join(FINAL);
        let temporary = self.path.join(".tmp-final");
        fs::remove_folder(&temporary)?;
        let parts = self.model_parts(parameters)?;
        write_sealed(&temporary, &Snapshot { step, parts })?;
        // The last checkpoint holds the same weights, so that nothing is lost between these two calls.
        fs::remove_folder(&target)?;
        fs::publish_folder(&temporary, &target)
    }
}

/// What a checkpoint says of the run that wrote it.
pub struct Resumed {
    /// The checkpoint, verified.
    pub checkpoint: Checkpoint,
    /// Where the run stood.
    pub state: TrainState,
    /// Its configuration.
    pub config: Value,
    /// Hashes of what it learnt from.
    pub inputs: Inputs,
    /// What it has logged.
    log: TrainerState,
}

impl Resumed {
    /// Reads the trainer's parts of a checkpoint.
    pub fn read(checkpoint: Checkpoint) -> Result<Self> {
        let refuse = |message: String| Problem::new(message).at(checkpoint.path().join(STATE).display());
        let state: TrainState = serde_json::from_value(checkpoint.json(STATE)?)
            .map_err(|e| refuse(format!("is not the state of a run of this version: {e}")))?;
        if state.step != checkpoint.step() {
            let message = format!("is of step {}, its checkpoint of step {}", state.step, checkpoint.step());
            return Err(refuse(message).into());
        }
        let log = TrainerState::from_json(checkpoint.json(TRAINER_STATE)?)
            .with_context(|| checkpoint.path().display().to_string())?;
        let config = checkpoint.json(CONFIG)?;
        let inputs = serde_json::from_value(checkpoint.json(INPUTS)?).map_err(|e| {
            let place = checkpoint.path().join(INPUTS);
            Problem::new(format!("is not a table of hashes: {e}")).at(place.display())
        })?;
        Ok(Self { checkpoint, state, config, inputs, log })
    }

    /// Puts weights and moments back.
    pub fn restore(
        &self,
        folders: &[ModelFolder],
        parameters: &Parameters,
        optimizer: &mut Optimizer,
    ) -> Result<()> {
        load_checkpoint(&self.checkpoint, folders, parameters)?;
        let place = || format!("checkpoint `{}`", self.checkpoint.path().display());
        optimizer.restore(&self.checkpoint.tensors(OPTIMIZER)?).with_context(place)
    }
}

/// Overwrites all parameters with those of a checkpoint, or of a final model folder.
pub fn load_checkpoint(
    checkpoint: &Checkpoint,
    folders: &[ModelFolder],
    parameters: &Parameters,
) -> Result<()> {
    let from = || checkpoint.path().display().to_string();
    for folder in folders {
        let tensors = checkpoint.tensors(&place(folder, MODEL))?;
        for (name, name_in_file) in &folder.names {
            let missing = || Problem::new(format!("tensor `{name_in_file}` is missing")).at(from());
            let tensor = tensors.get(name_in_file).ok_or_else(missing)?;
            parameters.set(name, tensor).with_context(from)?;
        }
    }
    Ok(())
}

/// A file of a model folder, below its checkpoint.
fn place(folder: &ModelFolder, file: &str) -> String {
    format!("{}{file}", folder.place)
}

/// The tensors of a model folder, by their names in it, out of those of the whole run.
fn tensors_of(folder: &ModelFolder, named: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>> {
    let find = |(name, name_in_file): &(String, String)| {
        let found = named.binary_search_by(|(known, _)| known.cmp(name));
        let index = found.map_err(|_| Problem::new(format!("parameter `{name}` is not part of this run")))?;
        Ok((name_in_file.clone(), named[index].1.clone()))
    };
    folder.names.iter().map(find).collect()
}
