//! The output side of a run, the same for every task: checkpoints, records, the final model.
//!
//! It knows the files of a checkpoint, but not the task that is trained.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use candle_core::{Device, Tensor};
use serde_json::Value;

use crate::tasks::Task;
use crate::tasks::run::{Inputs, ModelFolder};
use crate::telemetry::{MetricsLog, Outlets, Progress, Record, Sink, Sinks, TrainerState, TrainingProgress};
use crate::train::average::{TRAINED, WeightAverage, evaluated_weights};
use crate::train::band::Band;
use crate::train::checkpoint_files::{
    ADDED, CONFIG, FAILED_BATCH, INPUTS, MODEL, OPTIMIZER, Resumed, STATE, TRAINER_STATE, place, tensors_of,
};
use crate::train::own_folder::OwnFolder;
use crate::train::phases::Phases;
use crate::train::products::ProductsFile;
use crate::train::state::TrainState;
use crate::train::{room, weights};
use base::fs;
use base::sealed::{make_way, write_sealed};
use config::{RunSection, TrainingConfig};
use model::checkpoint::{BackgroundSave, Checkpoint, CheckpointStore, Part, Retention, Snapshot};
use model::distributed::World;
use model::layers::{Layout, Parameters};
use model::optim;
use model::optim::Optimizer;
use ops::tensor::copy_on_host;

/// Name of the folder of the final model inside a run folder.
pub const FINAL: &str = "final";

/// Name of the file of the records.
pub use crate::telemetry::METRICS;

/// Name of the file that describes the machine.
pub const MACHINE: &str = "machine.json";

/// Name of the model folder that is written for a probe.
const PROBED: &str = "probed";

/// Options for opening a run folder.
pub struct RunFolderOptions<'a> {
    /// The folder.
    pub path: &'a Path,
    /// The model folders inside a checkpoint.
    pub folders: Vec<ModelFolder>,
    /// The resolved configuration.
    pub config: Value,
    /// Hashes of the inputs of the run.
    pub inputs: Inputs,
    /// Intervals and number of checkpoints.
    pub training: &'a TrainingConfig,
    /// Total number of updates.
    pub total_steps: u64,
    /// Updates done when this sitting begins.
    pub first_step: u64,
    /// The phases, whose RoPE base is written into `config.json`.
    pub phases: Phases,
    /// Destinations of the records.
    pub outlets: Outlets,
    /// The processes of the run; only rank 0 writes.
    pub world: World,
    /// The expected band of the loss.
    pub band: Option<Band>,
}

/// The output side of a run.
pub struct RunFolder {
    pub(super) path: PathBuf,
    own: OwnFolder,
    products: ProductsFile,
    store: CheckpointStore,
    folders: Vec<ModelFolder>,
    phases: Phases,
    config: Value,
    inputs: Inputs,
    in_background: bool,
    limit: usize,
    total_bytes: Option<u64>,
    progress: Progress,
    bar: TrainingProgress,
    sinks: Sinks,
    outlets: Outlets,
    trainer_state: TrainerState,
    /// Checkpoints that an interruption saved while steps were bad.
    in_trouble: Vec<u64>,
    /// The checkpoint that is being written in the background.
    saving: Option<BackgroundSave>,
    world: World,
    band: Option<Band>,
}

impl RunFolder {
    /// Opens the folder for a run that starts afresh, or resumes from `resumed`.
    pub fn open(
        options: RunFolderOptions<'_>,
        resumed: Option<&Resumed>,
        progress: &Progress,
    ) -> Result<Self> {
        let RunFolderOptions { path, folders, config, inputs, training, total_steps, .. } = options;
        let RunFolderOptions { first_step, phases, outlets, world, band, .. } = options;
        let step = resumed.map(|resumed| resumed.state.step);
        let in_trouble = resumed.iter().filter(|resumed| resumed.state.divergence.bad_steps() > 0);
        let in_trouble = in_trouble.map(|resumed| resumed.state.step);
        let mut trainer_state = resumed.map_or_else(TrainerState::new, |resumed| resumed.log.clone());
        trainer_state.max_steps = total_steps;
        trainer_state.num_train_epochs = training.num_train_epochs.ceil() as u64;
        trainer_state.train_batch_size = Some(training.rows_at_once() as u64);
        trainer_state.logging_steps = training.logging_steps;
        trainer_state.eval_steps = training.eval_steps;
        trainer_state.save_steps = training.save_steps;
        let sinks = if world.is_first() { outlets.open(path, step)? } else { Sinks::new() };
        Ok(Self {
            path: path.to_path_buf(),
            own: OwnFolder::new(path),
            products: ProductsFile::new(path, world),
            store: CheckpointStore::new(path),
            folders,
            phases,
            world,
            config,
            inputs,
            in_background: training.save_in_background,
            limit: training.save_total_limit,
            total_bytes: training.save_total_bytes,
            progress: progress.clone(),
            bar: progress.training(path, total_steps, first_step),
            sinks,
            outlets,
            trainer_state,
            in_trouble: in_trouble.collect(),
            saving: None,
            band,
        })
    }

    /// Changes the number of steps after which the run ends.
    pub fn end_after(&mut self, total_steps: u64) {
        self.trainer_state.max_steps = total_steps;
        self.bar.end_after(total_steps);
    }

    /// Sets the step at which the bar is full, if a sitting ends before the run.
    pub fn pause_after(&mut self, step: u64) {
        self.bar.end_after(step);
    }

    /// Limits the remaining time that the bar shows to that of a time limit.
    pub fn end_within(&mut self, seconds: f64) {
        self.bar.end_within(seconds);
    }

    /// Returns true on rank 0, the process that writes.
    pub fn writes(&self) -> bool {
        self.world.is_first()
    }

    /// Returns an error if the disk cannot hold two checkpoints of a model with these parameters and
    /// `more_bytes` at the end of the run; warns if it cannot hold everything that the run keeps.
    pub fn require_space(
        &self,
        parameters: &Parameters,
        training: &TrainingConfig,
        run: &RunSection,
        more_bytes: u64,
    ) -> Result<()> {
        let checkpoint = optim::checkpoint_bytes(parameters.layout(), training);
        self.store.require_space((2 * checkpoint).saturating_add(more_bytes))?;
        let total_steps = Some(self.trainer_state.max_steps);
        // The final model has no state of an optimizer.
        let more_bytes = more_bytes.saturating_add(4 * parameters.layout().num_elements() as u64);
        let kept = room::most_checkpoint_bytes(checkpoint, training, total_steps, run.upload_to.is_some());
        let wanted = kept.saturating_add(more_bytes);
        let there = self.store.steps()?.len() as u64 * checkpoint;
        if let Some(warning) =
            fs::free_bytes(&self.path).ok().and_then(|free| room::disk_shortage(wanted, there, free))
        {
            self.progress.warn(&warning);
        }
        Ok(())
    }

    /// Moves the progress bar, and reports a background checkpoint that is finished.
    pub fn step(&mut self, step: u64) {
        self.bar.step(step);
        if self.saving.as_ref().is_some_and(BackgroundSave::is_finished) {
            self.settle();
        }
    }

    /// Waits for the checkpoint that is being written. A failure is reported and does not stop training: the
    /// next checkpoint will be tried again.
    pub fn settle(&mut self) {
        let Some(saving) = self.saving.take() else { return };
        let step = saving.step();
        match saving.wait() {
            Ok(warnings) => self.tell_saved(step, &warnings),
            Err(e) => self.warn_unsaved(step, &e),
        }
    }

    /// As [`Self::settle`], in all processes: rank 0 finishes its checkpoint before the others read it or
    /// end.
    fn settle_for_all(&mut self) -> Result<()> {
        self.settle();
        self.world.wait_for_all()
    }

    fn tell_saved(&self, step: u64, warnings: &[String]) {
        self.progress.detail(&format!("the checkpoint of step {step} is written"));
        for warning in warnings {
            self.progress.warn(warning);
        }
    }

    fn warn_unsaved(&self, step: u64, error: &anyhow::Error) {
        let text = format!("training goes on, but the checkpoint of step {step} was not saved: {error:#}");
        self.progress.warn(&text);
    }

    /// Writes a record to every sink; a failing sink is reported once and does not stop training.
    pub fn record(&mut self, record: &Record) {
        self.trainer_state.observe(record);
        self.record_aside(record);
        if let Some(warning) = self.band.as_mut().and_then(|band| band.look(record)) {
            self.progress.warn(&warning);
        }
    }

    /// As [`Self::record`], but the record does not become part of a checkpoint.
    pub fn record_aside(&mut self, record: &Record) {
        let mut warnings = self.sinks.write(record);
        warnings.extend(self.bar.write(record).err().map(|e| format!("{e:#}")));
        for warning in &warnings {
            self.progress.warn(warning);
        }
    }

    /// The values in the records of `step`.
    pub fn recorded(&self, step: u64) -> Result<BTreeMap<String, f64>> {
        MetricsLog::values_at(&self.path.join(METRICS), step)
    }

    /// Calls `use_folder` with a temporary model folder of these weights, a flat buffer of `layout`.
    pub fn with_model<R>(
        &mut self,
        layout: &Layout,
        weights: &Tensor,
        step: u64,
        use_folder: impl FnOnce(&Path) -> Result<R>,
    ) -> Result<R> {
        self.settle();
        let target = self.path.join(PROBED);
        let parts = self.model_parts(&layout.named(&weights.to_device(&Device::Cpu)?)?, step)?;
        self.publish(&target, &Snapshot { step, parts })?;
        let result = use_folder(&target);
        fs::remove_folder(&target)?;
        result
    }

    /// Prints a note.
    pub fn note(&self, text: &str) {
        self.progress.note(text);
    }

    /// Prints a warning.
    pub fn warn(&self, text: &str) {
        self.progress.warn(text);
    }

    /// Saves `checkpoint-<step>`: the `last` one of a sitting before this function returns, others in the
    /// background if memory has room for a copy. Only a failure of the last one is an error.
    pub fn save(
        &mut self,
        task: &dyn Task,
        optimizer: &Optimizer,
        average: Option<&WeightAverage>,
        state: &TrainState,
        last: bool,
    ) -> Result<()> {
        self.settle();
        let best_step = state.best.step();
        self.trainer_state.global_step = state.step;
        self.trainer_state.epoch = state.epoch;
        self.trainer_state.num_input_tokens_seen = state.num_input_tokens_seen;
        self.trainer_state.total_flos = state.total_flos;
        self.trainer_state.best_metric = state.best.score();
        self.trainer_state.best_global_step = best_step;
        self.trainer_state.best_model_checkpoint =
            best_step.map(|step| self.store.path_of(step).display().to_string());
        self.products.collect(self.world, task.parameters().flat().device())?;
        if !self.writes() {
            return Ok(());
        }
        self.own.require()?;
        // A finished run never goes back to a checkpoint.
        let save_steps = if state.finished { 0 } else { self.trainer_state.save_steps };
        self.in_trouble.extend((state.divergence.bad_steps() > 0).then_some(state.step));
        let in_trouble = self.in_trouble.clone();
        let keep =
            Retention { limit: self.limit, save_steps, total_bytes: self.total_bytes, in_trouble, best_step };
        let mut warnings = Vec::new();
        if self.outlets.show_weights() {
            warnings = self.sinks.weights(state.step, &weights::spread(task.parameters())?);
        }
        // After a power cut, a run resumed from this checkpoint must have the records of all steps before it.
        warnings.extend(self.sinks.sync());
        warnings.extend(self.products.write());
        for warning in warnings {
            self.progress.warn(&warning);
        }
        let checkpoint = optimizer.checkpoint_bytes(task.parameters(), average.is_some())
            + task.parameters().layout().copied_bytes();
        let in_background = !last && self.in_background && room::has_room_for(checkpoint);
        let saved = self.snapshot(task.parameters(), optimizer, average, state, in_background);
        let saved = saved.and_then(|snapshot| {
            if in_background {
                self.saving = Some(BackgroundSave::start(&self.store, snapshot, keep));
                return Ok(Vec::new());
            }
            self.store.save(&snapshot, &keep)
        });
        match saved {
            // A checkpoint in the background is reported when it is written.
            Ok(_) if self.saving.is_some() => {}
            Ok(warnings) => self.tell_saved(state.step, &warnings),
            Err(e) if last => return Err(e),
            Err(e) => self.warn_unsaved(state.step, &e),
        }
        Ok(())
    }

    /// All parts of a checkpoint; its tensors are copied if training continues meanwhile.
    fn snapshot(
        &self,
        parameters: &Parameters,
        optimizer: &Optimizer,
        average: Option<&WeightAverage>,
        state: &TrainState,
        copies: bool,
    ) -> Result<Snapshot> {
        // One copy of the flat buffer: copying a single view would copy the whole buffer.
        let on_host = if copies { copy_on_host } else { |t: &Tensor| t.to_device(&Device::Cpu) };
        let named = parameters.layout().named(&on_host(&evaluated_weights(average, parameters))?)?;
        let mut moments = optimizer.snapshot()?;
        // Moments gathered from several processes are copies already.
        if copies && !optimizer.is_sharded() {
            for (_, tensor) in &mut moments {
                *tensor = copy_on_host(tensor)?;
            }
        }
        let mut parts = vec![
            (OPTIMIZER.to_string(), Part::Tensors(moments)),
            (STATE.to_string(), Part::Json(state.to_json()?)),
            (CONFIG.to_string(), Part::Json(self.config.clone())),
            (INPUTS.to_string(), Part::Json(serde_json::to_value(&self.inputs)?)),
            (TRAINER_STATE.to_string(), Part::Json(self.trainer_state.to_json())),
        ];
        if let Some(average) = average {
            let trained = average.snapshot(on_host(parameters.flat())?)?;
            parts.push((TRAINED.to_string(), Part::Tensors(trained)));
        }
        parts.extend(self.added_part(&named));
        parts.extend(self.model_parts(&named, state.step)?);
        Ok(Snapshot { step: state.step, parts })
    }

    /// The parameters of which model folders contain only sums, separately.
    fn added_part(&self, named: &[(String, Tensor)]) -> Option<(String, Part)> {
        let added: Vec<&String> =
            self.folders.iter().flat_map(|folder| &folder.added).map(|(own, _)| own).collect();
        let tensors = named.iter().filter(|(name, _)| added.contains(&name)).cloned().collect();
        (!added.is_empty()).then(|| (ADDED.to_string(), Part::Tensors(tensors)))
    }

    /// All files of the model folders, with the RoPE base that the model of `step` was trained with.
    fn model_parts(&self, named: &[(String, Tensor)], step: u64) -> Result<Vec<(String, Part)>> {
        let theta = self.phases.theta_of(step);
        let mut parts = Vec::new();
        for folder in &self.folders {
            parts.push((place(folder, MODEL), Part::Tensors(tensors_of(folder, named)?)));
            let files = folder.files_with(theta)?.into_iter();
            parts.extend(files.map(|(name, bytes)| (place(folder, &name), Part::Bytes(bytes))));
        }
        Ok(parts)
    }

    /// The phases of the run.
    pub fn phases(&self) -> &Phases {
        &self.phases
    }

    /// The model folders inside a checkpoint.
    pub fn folders(&self) -> &[ModelFolder] {
        &self.folders
    }

    /// The steps of the checkpoints that were saved while steps were good, ascending.
    pub fn good_steps(&mut self) -> Result<Vec<u64>> {
        self.settle_for_all()?;
        let mut steps = self.store.steps()?;
        steps.retain(|step| !self.in_trouble.contains(step));
        Ok(steps)
    }

    /// Returns to the state after `step`: deletes the records and checkpoints of the steps after it, up to
    /// `until`.
    pub fn go_back(&mut self, step: u64, until: u64) -> Result<()> {
        self.bar.step(step);
        self.trainer_state.rewind(step);
        self.in_trouble.clear();
        if !self.writes() {
            return Ok(());
        }
        for warning in self.sinks.finish() {
            self.progress.warn(&warning);
        }
        self.sinks = self.outlets.open(&self.path, Some(step))?;
        let abandoned = self.store.steps()?.into_iter().filter(|found| (step + 1..=until).contains(found));
        abandoned.into_iter().try_for_each(|step| self.store.remove(step))
    }

    /// Writes `diverged-<step>`: the current model and the batch on which it failed.
    pub fn save_failed(&mut self, parameters: &Parameters, step: u64, batch: Value) -> Result<PathBuf> {
        self.settle();
        let target = self.path.join(format!("diverged-{step}"));
        if !self.writes() {
            self.settle_for_all()?;
            return Ok(target);
        }
        let mut parts = vec![
            (FAILED_BATCH.to_string(), Part::Json(batch)),
            (CONFIG.to_string(), Part::Json(self.config.clone())),
        ];
        let named = parameters.named()?;
        parts.extend(self.added_part(&named));
        parts.extend(self.model_parts(&named, step)?);
        self.publish(&target, &Snapshot { step, parts })?;
        self.settle_for_all()?;
        Ok(target)
    }

    /// The verified checkpoint of `step`.
    pub fn checkpoint(&mut self, step: u64) -> Result<Checkpoint> {
        self.settle_for_all()?;
        Checkpoint::open(&self.store.path_of(step))
    }

    /// Closes the sinks and writes the final model folder of `step`, in the format of transformers and with
    /// hashes. Its weights are those of step `trained_until`, and `files` are added to it.
    pub fn finish(
        &mut self,
        parameters: &Parameters,
        step: u64,
        trained_until: u64,
        files: Vec<(String, Vec<u8>)>,
    ) -> Result<()> {
        self.settle();
        let mut warnings = self.sinks.finish();
        warnings.extend(self.bar.finish().err().map(|e| format!("{e:#}")));
        for warning in &warnings {
            self.progress.warn(warning);
        }
        if !self.writes() {
            return Ok(());
        }
        let mut parts = self.model_parts(&parameters.named()?, trained_until)?;
        parts.extend(files.into_iter().map(|(name, bytes)| (name, Part::Bytes(bytes))));
        self.publish(&self.path.join(FINAL), &Snapshot { step, parts })
    }

    /// Writes a folder with its hashes, replacing one that can be made again from a checkpoint.
    fn publish(&self, target: &Path, snapshot: &Snapshot) -> Result<()> {
        self.own.require()?;
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let temporary = self.path.join(format!(".tmp-{name}"));
        fs::remove_folder(&temporary)?;
        write_sealed(&temporary, snapshot.step, &snapshot.parts)?;
        if let Some(kept) = make_way(target, &snapshot.parts)? {
            let text =
                format!("`{}` held files of others: it is kept as `{}`", target.display(), kept.display());
            self.progress.warn(&text);
        }
        fs::publish_folder(&temporary, target)
    }
}

impl Drop for RunFolder {
    /// Finishes a checkpoint that was begun, however the run ends.
    fn drop(&mut self) {
        self.settle();
    }
}
