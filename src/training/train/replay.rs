//! Runs one step of a diverged run again, to find the first value that is not finite.
//!
//! It reads the `diverged-<step>` folder written by `rollback.rs`, and writes nothing.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use candle_core::{DType, Device, Tensor};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::machine;
use crate::machine::Machine;
use crate::tasks::list::Unfilled;
use crate::tasks::run::Setting;
use crate::tasks::{Task, list};
use crate::telemetry::Progress;
use crate::train::checkpoint_files::{CONFIG, FAILED_BATCH, load_checkpoint};
use crate::train::rollback::FailedStep;
use base::error::Problem;
use base::fs;
use config::{FinetuneConfig, PrecisionConfig, PretrainConfig, RunSection, with_variables};
use data::batches::Batch;
use model::checkpoint::Checkpoint;
use model::layers::context::Pass;
use model::layers::{Gradients, Part};

/// A step that failed, with the task as it was before the step.
pub struct Replay {
    /// The saved description of the step.
    pub failed: FailedStep,
    /// The machine that computes it.
    pub machine: Machine,
    task: Box<dyn Task>,
    /// File with the batches of the step.
    place: PathBuf,
}

/// Statistics of a tensor of the step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Observation {
    /// Kind of tensor.
    pub stage: Stage,
    /// Name of the parameter, or of the part of the model that returned the tensor.
    pub name: String,
    /// Number of the micro-batch, from 1, if the tensor belongs to one.
    pub micro_batch: Option<usize>,
    /// Number of values.
    pub elements: usize,
    /// Number of values that are not finite.
    pub not_finite: usize,
    /// Root mean square of the finite values.
    pub rms: f64,
    /// Largest absolute value of the finite ones.
    pub largest: f64,
}

/// The role of a tensor in the step, in the order of computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// A trainable parameter, before the step.
    Parameter,
    /// The output of a part of the model.
    HiddenStates,
    /// The sum of the losses of a micro-batch.
    Loss,
    /// The gradient of a parameter, after all micro-batches.
    Gradient,
}

impl Replay {
    /// Opens the folder of a failed step, or a file in it.
    pub fn open(path: &Path) -> Result<Self> {
        let root =
            path.ancestors().find(|folder| fs::exists(&folder.join(FAILED_BATCH))).ok_or_else(|| {
                Problem::usage("is no folder of a step that failed")
                    .at(path.display())
                    .hint("a run that diverges leaves one, `diverged-<step>`, in its `run.output_dir`")
            })?;
        let saved = Checkpoint::open(root)?;
        let failed: FailedStep = part(&saved, FAILED_BATCH)?;
        let config = with_variables(saved.json(CONFIG)?);
        let run: RunSection = section(&saved, &config, "run")?;
        let precision: PrecisionConfig = section(&saved, &config, "precision")?;
        let machine = machine::set_up(&run, &precision)?;
        let (task, folders) = unfilled(&saved, &config, &machine, failed.seed)?;
        load_checkpoint(&saved, &folders, task.parameters())?;
        Ok(Self { failed, machine, task, place: root.join(FAILED_BATCH) })
    }

    /// Runs forward and backward of the step, and returns statistics of every tensor.
    pub fn run(&self) -> Result<Vec<Observation>> {
        self.observe().with_context(|| format!("the step in `{}` cannot be done again", self.place.display()))
    }

    fn observe(&self) -> Result<Vec<Observation>> {
        let Self { failed, task, .. } = self;
        let mut seen = Vec::new();
        for (name, tensor) in task.parameters().named()? {
            seen.push(observed(Stage::Parameter, name, None, &tensor)?);
        }
        let mut gradients = Gradients::new(task.parameters())?;
        gradients.clear();
        let scales = self.scales();
        for (index, batch) in failed.micro.iter().enumerate() {
            let number = Some(index + 1);
            let pass = Pass {
                last_micro_batch: index + 1 == failed.micro.len(),
                ..Pass::new(failed.seed, failed.step)
            };
            task.observe(batch, pass, &mut |model, part, hidden_td| {
                let name = [model, &part_name(part)].join(" ").trim_start().to_string();
                let observation = observed(Stage::HiddenStates, name, number, hidden_td);
                seen.push(observation.map_err(|e| candle_core::Error::Msg(format!("{e:#}")))?);
                Ok(())
            })?;
            let losses = task.accumulate(batch, pass, &scales, &gradients)?;
            for (term, loss) in task.terms().iter().zip(losses) {
                let sum = Tensor::new(&[loss.read()?.sum], &Device::Cpu)?;
                seen.push(observed(Stage::Loss, term.name.to_string(), number, &sum)?);
            }
        }
        let flat = gradients.flat()?;
        // In reverse order of registration: the backward pass reaches the last parameters first.
        for spec in task.parameters().layout().specs().collect::<Vec<_>>().into_iter().rev() {
            let gradient = flat.narrow(0, spec.range.start, spec.range.len())?;
            seen.push(observed(Stage::Gradient, spec.name.clone(), None, &gradient)?);
        }
        Ok(seen)
    }

    /// The factor of the loss of each target, by term, as in the step.
    fn scales(&self) -> Vec<f32> {
        let scale = self.failed.loss_scale.unwrap_or(1.0);
        let terms = self.task.terms().iter().enumerate();
        let scales = terms.map(|(index, term)| {
            let counts = self.failed.micro.iter().map(|batch: &Batch| self.task.counts(batch)[index]);
            (scale * term.weight / counts.sum::<usize>().max(1) as f64) as f32
        });
        scales.collect()
    }
}

/// The first tensor with a value that is not finite.
pub fn first_not_finite(seen: &[Observation]) -> Option<&Observation> {
    seen.iter().find(|observation| observation.not_finite > 0)
}

/// Reads a JSON part of the saved step.
fn part<T: DeserializeOwned>(saved: &Checkpoint, name: &str) -> Result<T> {
    read(saved, name, saved.json(name)?)
}

/// Reads a section of the configuration of the run.
fn section<T: DeserializeOwned>(saved: &Checkpoint, config: &Value, key: &str) -> Result<T> {
    read(saved, CONFIG, config[key].clone())
}

fn read<T: DeserializeOwned>(saved: &Checkpoint, name: &str, value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(|e| {
        let place = saved.path().join(name);
        Problem::new(format!("is not what this version writes: {e}")).at(place.display()).into()
    })
}

/// The task of the run that wrote `saved`, with parameters that are still to be loaded.
fn unfilled(saved: &Checkpoint, config: &Value, machine: &Machine, seed: u64) -> Result<Unfilled> {
    // Only configurations of fine-tuning have `data.train_file`.
    if config["data"].get("train_file").is_some() {
        let config: FinetuneConfig = read(saved, CONFIG, config.clone())?;
        return list::of_finetuning(saved.path(), &config, machine);
    }
    let config: PretrainConfig = read(saved, CONFIG, config.clone())?;
    let setting = Setting {
        training: &config.training,
        machine,
        seed,
        progress: &Progress::silent(),
        is_beginning: false,
        is_interrupted: &|| false,
    };
    list::of_pretraining(saved.path(), &config, setting)
}

/// Statistics of one tensor.
fn observed(stage: Stage, name: String, micro_batch: Option<usize>, tensor: &Tensor) -> Result<Observation> {
    let values = tensor.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>()?;
    let finite = values.iter().copied().filter(|value| value.is_finite());
    let mut squares = 0.0;
    let mut largest = 0.0f64;
    let mut count = 0_usize;
    for value in finite {
        squares += value * value;
        largest = largest.max(value.abs());
        count += 1;
    }
    let rms = (squares / count.max(1) as f64).sqrt();
    let elements = values.len();
    Ok(Observation { stage, name, micro_batch, elements, not_finite: elements - count, rms, largest })
}

/// The name of a part, as in the names of its parameters within the model.
fn part_name(part: Part) -> String {
    match part {
        Part::Embeddings => "embeddings".to_string(),
        Part::Layer(layer) => format!("encoder.layer.{layer}"),
        Part::Head => "head".to_string(),
    }
}
