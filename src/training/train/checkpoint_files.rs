//! The files of a checkpoint that belong to the run, and how they are read back.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use candle_core::Tensor;
use serde_json::Value;

use crate::tasks::run::{Inputs, ModelFolder};
use crate::telemetry::TrainerState;
use crate::train::average;
use crate::train::average::{TRAINED, WeightAverage};
use crate::train::state::TrainState;
use base::error::Problem;
use base::fs;
use config::{for_seed_folder, with_former_defaults};
use model::checkpoint::Checkpoint;
use model::layers::Parameters;
use model::optim::Optimizer;

/// Weights of the model inside a checkpoint.
pub const MODEL: &str = "model.safetensors";
pub(super) const OPTIMIZER: &str = "trainer/optimizer.safetensors";
/// Exact values of the parameters of which a model folder contains only the sum with another parameter.
pub(super) const ADDED: &str = "trainer/added.safetensors";
pub(super) const STATE: &str = "trainer/state.json";
/// Hashes of the inputs of the run, inside a checkpoint.
pub const INPUTS: &str = "trainer/inputs.json";
/// The configuration of the run, inside a checkpoint.
pub const CONFIG: &str = "trainer/config.json";
pub(super) const TRAINER_STATE: &str = "trainer_state.json";
/// The batches of a failed step, inside `diverged-<step>`.
pub const FAILED_BATCH: &str = "trainer/batch.json";

/// The state of a run, as read from a checkpoint.
pub struct Resumed {
    /// The verified checkpoint.
    pub checkpoint: Checkpoint,
    /// The training state of the run.
    pub state: TrainState,
    /// The configuration of the run.
    pub config: Value,
    /// Hashes of the inputs of the run.
    pub inputs: Inputs,
    /// The log of the run, in the format of the Hugging Face Trainer.
    pub(super) log: TrainerState,
}

impl Resumed {
    /// Reads the trainer's parts of a checkpoint.
    pub fn read(checkpoint: Checkpoint) -> Result<Self> {
        let state_path = checkpoint.path().join(STATE);
        let state: TrainState = serde_json::from_value(checkpoint.json(STATE)?).map_err(|e| {
            Problem::new(format!("is not the state of a run of this version: {e}")).at(state_path.display())
        })?;
        if state.step != checkpoint.step() {
            let message = format!("is of step {}, its checkpoint of step {}", state.step, checkpoint.step());
            return Err(Problem::new(message).at(state_path.display()).into());
        }
        let log = TrainerState::from_json(checkpoint.json(TRAINER_STATE)?)
            .with_context(|| checkpoint.path().display().to_string())?;
        let run_folder = fs::parent_of(checkpoint.path());
        let config = for_seed_folder(with_former_defaults(checkpoint.json(CONFIG)?), &run_folder);
        let inputs = serde_json::from_value(checkpoint.json(INPUTS)?).map_err(|e| {
            let place = checkpoint.path().join(INPUTS);
            Problem::new(format!("is not a table of hashes: {e}")).at(place.display())
        })?;
        Ok(Self { checkpoint, state, config, inputs, log })
    }

    /// Restores weights, their average if the run has one, and moments.
    pub fn restore(
        &self,
        folders: &[ModelFolder],
        parameters: &Parameters,
        average: Option<&mut WeightAverage>,
        optimizer: &mut Optimizer,
    ) -> Result<()> {
        load_checkpoint(&self.checkpoint, folders, parameters)?;
        let place = format!("checkpoint `{}`", self.checkpoint.path().display());
        if self.checkpoint.names().any(|name| name == TRAINED) {
            let trained = self.checkpoint.tensors(TRAINED)?;
            average::restore(&trained, parameters, average).context(place.clone())?;
        }
        optimizer.restore(&self.checkpoint.tensors(OPTIMIZER)?).context(place)
    }
}

/// Overwrites all parameters with those of a checkpoint or of a final model folder.
pub fn load_checkpoint(
    checkpoint: &Checkpoint,
    folders: &[ModelFolder],
    parameters: &Parameters,
) -> Result<()> {
    let path = checkpoint.path().display();
    for folder in folders {
        let tensors = checkpoint.tensors(&place(folder, MODEL))?;
        for (name, name_in_file) in &folder.names {
            let tensor = tensors
                .get(name_in_file)
                .ok_or_else(|| Problem::new(format!("tensor `{name_in_file}` is missing")).at(&path))?;
            parameters.set(name, tensor).with_context(|| path.to_string())?;
        }
    }
    take_apart(checkpoint, folders, parameters)
}

/// Restores the parameters of which a folder contains sums: from their exact values in a checkpoint,
/// otherwise as the rounded difference of the sum and the other parameter (in a folder that is used but not
/// trained on).
fn take_apart(checkpoint: &Checkpoint, folders: &[ModelFolder], parameters: &Parameters) -> Result<()> {
    let added: Vec<&(String, String)> = folders.iter().flat_map(|folder| &folder.added).collect();
    if added.is_empty() {
        return Ok(());
    }
    let is_there = checkpoint.names().any(|name| name == ADDED);
    let by_themselves = if is_there { checkpoint.tensors(ADDED)? } else { BTreeMap::new() };
    let named: BTreeMap<String, Tensor> = parameters.named()?.into_iter().collect();
    for (own, shared) in added {
        let value = match by_themselves.get(own) {
            Some(value) => value.clone(),
            None => (&named[own] - &named[shared])?,
        };
        parameters.set(own, &value)?;
    }
    Ok(())
}

/// The path of a file of a model folder within its checkpoint.
pub(super) fn place(folder: &ModelFolder, file: &str) -> String {
    format!("{}{file}", folder.place)
}

/// The tensors of a model folder under their names in its file, taken from the parameters of the whole run.
pub(super) fn tensors_of(folder: &ModelFolder, named: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>> {
    let tensors = folder.names.iter().map(|(name, name_in_file)| {
        let value = match folder.added.iter().find(|(own, _)| own == name) {
            None => find(named, name)?.clone(),
            Some((_, shared)) => (find(named, name)? + find(named, shared)?)?,
        };
        Ok((name_in_file.clone(), value))
    });
    tensors.collect()
}

/// The tensor of a parameter in `named`, which is sorted by name.
fn find<'a>(named: &'a [(String, Tensor)], name: &str) -> Result<&'a Tensor, Problem> {
    let found = named.binary_search_by(|(known, _)| known.as_str().cmp(name));
    let index = found.map_err(|_| Problem::new(format!("parameter `{name}` is not part of this run")))?;
    Ok(&named[index].1)
}
