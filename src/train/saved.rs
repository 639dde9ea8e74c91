//! What a checkpoint holds of a run, by the names of its files, and how a run takes it back.

use std::collections::BTreeMap;

use anyhow::Context;
use anyhow::Result;
use candle_core::Tensor;
use serde_json::Value;

use crate::checkpoint::Checkpoint;
use crate::config::with_former_defaults;
use crate::error::Problem;
use crate::layers::Parameters;
use crate::optim::Optimizer;
use crate::tasks::run::Inputs;
use crate::tasks::run::ModelFolder;
use crate::telemetry::TrainerState;
use crate::train::state::TrainState;

/// Weights of the model inside a checkpoint.
pub const MODEL: &str = "model.safetensors";
pub(super) const OPTIMIZER: &str = "trainer/optimizer.safetensors";
/// Parameters of which a model folder holds the sum with another one: by themselves, to the last bit.
pub(super) const ADDED: &str = "trainer/added.safetensors";
pub(super) const STATE: &str = "trainer/state.json";
/// Hashes of what the run learnt from inside a checkpoint.
pub const INPUTS: &str = "trainer/inputs.json";
/// The configuration of the run inside a checkpoint.
pub const CONFIG: &str = "trainer/config.json";
pub(super) const TRAINER_STATE: &str = "trainer_state.json";
/// The batches of a step that failed, inside `diverged-<step>`.
pub const FAILED_BATCH: &str = "trainer/batch.json";

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
    pub(super) log: TrainerState,
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
        let config = with_former_defaults(checkpoint.json(CONFIG)?);
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
        let missing = |name: &str| Problem::new(format!("tensor `{name}` is missing")).at(from());
        for (name, name_in_file) in &folder.names {
            let tensor = tensors.get(name_in_file).ok_or_else(|| missing(name_in_file))?;
            parameters.set(name, tensor).with_context(from)?;
        }
    }
    take_apart(checkpoint, folders, parameters)
}

/// Puts parameters in the place of the sums that a folder holds: those that a checkpoint has by themselves, or
/// what is left of the sum, which is rounded, in a folder that is to be used and not trained on.
fn take_apart(checkpoint: &Checkpoint, folders: &[ModelFolder], parameters: &Parameters) -> Result<()> {
    let added: Vec<&(String, String)> = folders.iter().flat_map(|folder| &folder.added).collect();
    if added.is_empty() {
        return Ok(());
    }
    let is_there = checkpoint.names().any(|name| name == ADDED);
    let by_themselves = if is_there { checkpoint.tensors(ADDED)? } else { BTreeMap::new() };
    let named: BTreeMap<String, Tensor> = parameters.named()?.into_iter().collect();
    for (own, shared) in added {
        let rest = || Ok::<_, anyhow::Error>((&named[own] - &named[shared])?);
        let value = by_themselves.get(own).cloned().map_or_else(rest, Ok)?;
        parameters.set(own, &value)?;
    }
    Ok(())
}

/// A file of a model folder, below its checkpoint.
pub(super) fn place(folder: &ModelFolder, file: &str) -> String {
    format!("{}{file}", folder.place)
}

/// The tensors of a model folder, by their names in it, out of those of the whole run.
pub(super) fn tensors_of(folder: &ModelFolder, named: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>> {
    let find = |name: &String| {
        let found = named.binary_search_by(|(known, _)| known.cmp(name));
        let index = found.map_err(|_| Problem::new(format!("parameter `{name}` is not part of this run")))?;
        Ok::<_, anyhow::Error>(&named[index].1)
    };
    let tensor = |(name, name_in_file): &(String, String)| {
        let value = match folder.added.iter().find(|(own, _)| own == name) {
            None => find(name)?.clone(),
            Some((_, shared)) => (find(name)? + find(shared)?)?,
        };
        Ok((name_in_file.clone(), value))
    };
    folder.names.iter().map(tensor).collect()
}
