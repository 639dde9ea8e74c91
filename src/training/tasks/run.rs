//! The parts of a whole run that differ by task: model, data, files and scores.
//!
//! The skeleton that all runs share is `train/run.rs`; it knows no task by name.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use candle_core::DType;
use serde_json::Value;

use crate::machine::{Machine, Place};
use crate::tasks::Task;
use crate::telemetry::Progress;
use base::error::Problem;
use base::families::{ModelConfig, SpecialRole};
use base::scores::Better;
use config::TrainingConfig;
use data::batches::{Cursor, Planner, StepBatches};
use data::tokenizer::Tokenizer;
use model::distributed::leaves;
use model::interop::HubConfig;
use model::layers::{GradientPlaces, Layout};
use model::models::memory::{Outline, Prediction, StepSizes};
use model::optim;

/// The file that describes a model in its folder.
const CONFIG_JSON: &str = "config.json";

/// Scores with the names that the Trainer of transformers gives them.
pub type Scores = Vec<(String, f64)>;

/// Scores with these names.
pub(super) fn named<const N: usize>(names: [&str; N], values: [f64; N]) -> Scores {
    names.into_iter().map(str::to_string).zip(values).collect()
}

/// The inputs of a run in addition to its configuration: a hash of each, by the configuration key that names
/// the input.
pub type Inputs = BTreeMap<String, String>;

/// The values that the trainer passes to [`Kind::build`].
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// Batch, optimizer and schedule, with the values left open in the configuration filled in.
    pub training: &'a TrainingConfig,
    /// Device and number types of the run.
    pub machine: &'a Machine,
    /// Seed of the initial values, the order of the examples, masks and dropout.
    pub seed: u64,
    /// Receives notes for the user.
    pub progress: &'a Progress,
    /// True if training starts with the initial values; false if a checkpoint will overwrite them.
    pub is_beginning: bool,
    /// Returns true once a signal asks the run to end.
    pub is_interrupted: &'a (dyn Fn() -> bool + Sync),
}

impl Setting<'_> {
    /// Returns an error once a signal asks the run to end. The trainer names the signal.
    pub fn go_on(&self) -> Result<()> {
        if (self.is_interrupted)() {
            return Err(Problem::new("the preparation of the run was interrupted").into());
        }
        Ok(())
    }
}

/// A kind of run: pretraining or fine-tuning for one task.
pub trait Kind: Send {
    /// The model and its loss.
    type Task: Task + Send;
    /// Batches and evaluation.
    type Data: Data + Send;

    /// Returns the sizes of a step, from which its memory is predicted.
    fn shapes(&self) -> Result<Shapes>;

    /// Returns hashes of the training data and the starting model. A run resumes only if they are unchanged.
    fn inputs(&self) -> Result<Inputs>;

    /// Builds all parts, with initial values. Problems that would only show at the end of a run are reported
    /// here.
    fn build(self, setting: Setting<'_>) -> Result<Parts<Self::Task, Self::Data>>;
}

/// The parts of a run that is ready to train.
pub struct Parts<T, D> {
    /// The model and its loss.
    pub task: T,
    /// Batches and evaluation.
    pub data: D,
    /// Number of updates of the whole run.
    pub total_steps: u64,
    /// The model folders that each checkpoint contains.
    pub folders: Vec<ModelFolder>,
    /// The score that selects the best checkpoint, and if higher or lower is better.
    pub best: (&'static str, Better),
}

/// Position from which a run starts or resumes.
#[derive(Debug, Clone)]
pub struct Beginning {
    /// Position of the next batch in the data.
    pub cursor: Cursor,
    /// Number of updates done.
    pub step: u64,
    /// Number of updates of the whole run.
    pub total_steps: u64,
}

/// The batches of a run and its evaluation.
pub trait Data {
    /// From the next start on, loader threads pass the batches that they make to `planner`.
    fn plan_with(&mut self, _planner: Planner) {}

    /// Prepares the steps from `beginning` on.
    fn start(&mut self, beginning: Beginning) -> Result<()>;

    /// Returns the micro-batches of the next step.
    fn next_step(&mut self) -> Result<StepBatches>;

    /// Takes back the step that was trained on, so that its memory is reused.
    fn give_back(&mut self, _step: StepBatches) {}

    /// Returns the scores of the current model, `loss` first; `None` if the evaluation was interrupted. The
    /// predictions may be kept until the next evaluation.
    fn evaluate(&mut self, task: &dyn Task, interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>>;

    /// Returns the scores of the final model on test examples, with names that begin with `test_`; none
    /// without test examples, `None` if it was interrupted.
    fn test(&mut self, _task: &dyn Task, _interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        Ok(Some(Scores::new()))
    }

    /// Returns the share of each source in the tokens of the step after `steps_done`, if the mix changes
    /// during the run; otherwise nothing.
    fn mix(&self, _steps_done: u64) -> Vec<(String, f64)> {
        Vec::new()
    }

    /// Returns the names of all scores that an evaluation may give.
    fn score_names(&self) -> Vec<String> {
        vec!["loss".to_string()]
    }

    /// Returns true if [`Data::finish`] needs an evaluation of the final model in this process.
    fn wants_evaluation(&self) -> bool {
        false
    }

    /// Returns additional files for the folder of the final model, made from the results of its last
    /// evaluation.
    fn model_files(&self) -> Vec<(String, Vec<u8>)> {
        Vec::new()
    }

    /// Returns an upper limit on the bytes that [`Data::finish`] writes.
    fn finish_bytes(&self) -> u64 {
        0
    }

    /// Writes further results into the run's folder `output`, next to the final model. Returns scores that
    /// need no model, or `None` if it was interrupted.
    fn finish(&mut self, _output: &Path, _interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        Ok(Some(Scores::new()))
    }
}

/// A folder that transformers can load: some parameters of the run, with the configuration and tokenizer
/// files.
#[derive(Debug, Clone)]
pub struct ModelFolder {
    /// Path relative to a checkpoint, with a slash at the end; empty if the checkpoint itself is the folder.
    pub place: &'static str,
    /// `config.json` and the files of the tokenizer.
    pub files: Vec<(String, Vec<u8>)>,
    /// The parameters in the folder, as pairs of their name in the run and their name in the folder.
    pub names: Vec<(String, String)>,
    /// Parameters stored as a sum: pairs of a parameter and the other parameter of the run that is added to
    /// it.
    pub added: Vec<(String, String)>,
}

impl ModelFolder {
    /// The folder of the only model of a run, with the parameters' own names.
    pub fn whole(config: &HubConfig, tokenizer: &Tokenizer, layout: &Layout) -> Self {
        Self::new("", config, tokenizer, layout.own_names())
    }

    /// The folder of a model at `place`; `names` are pairs of a parameter's name in the run and its name in
    /// the folder.
    pub fn new(
        place: &'static str,
        config: &HubConfig,
        tokenizer: &Tokenizer,
        names: Vec<(String, String)>,
    ) -> Self {
        let mut config = config.clone();
        let special = tokenizer.special();
        for (key, role) in config.model.family.token_ids {
            let id = match role {
                SpecialRole::Cls => special.cls,
                SpecialRole::Sep => special.sep,
            };
            config.extra.insert((*key).to_string(), id.into());
        }
        let mut files = vec![(CONFIG_JSON.to_string(), format!("{:#}\n", config.to_json()).into_bytes())];
        files.extend(tokenizer.files_of_model(has_token_types(&config.model, tokenizer)));
        Self { place, files, names, added: Vec::new() }
    }

    /// Returns the files, with this RoPE base of the layers with global attention in `config.json` if one is
    /// given.
    pub fn files_with(&self, global_rope_theta: Option<f64>) -> Result<Vec<(String, Vec<u8>)>> {
        let mut files = self.files.clone();
        let Some(theta) = global_rope_theta else { return Ok(files) };
        for (_, bytes) in files.iter_mut().filter(|(name, _)| name == CONFIG_JSON) {
            let mut config: Value = serde_json::from_slice(bytes)?;
            config["global_rope_theta"] = theta.into();
            *bytes = format!("{config:#}\n").into_bytes();
        }
        Ok(files)
    }

    /// Returns an error for a model whose `config.json` could not be read back.
    pub fn require_readable(&self) -> Result<()> {
        let mut configs = self.files.iter().filter(|(name, _)| name == CONFIG_JSON);
        configs.try_for_each(|(_, bytes)| HubConfig::require_readable(bytes))
    }

    /// Returns the folder with the sums of these pairs of parameters, each sum under the name of the first
    /// parameter.
    #[must_use]
    pub fn with_added(self, added: Vec<(String, String)>) -> Self {
        Self { added, ..self }
    }
}

/// Returns true if tokens have types other than 0 for this model.
fn has_token_types(model: &ModelConfig, tokenizer: &Tokenizer) -> bool {
    let types = model.encoder.type_vocab_size as u32;
    tokenizer.framing().with_types_below(types) != tokenizer.framing().with_types_below(1)
}

/// Number of rows that reach a head.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TargetShare {
    /// This fraction of the tokens.
    OfTokens(f64),
    /// One row per sequence.
    OneARow,
}

/// The sizes of a run's steps that determine its memory.
pub struct Shapes {
    /// Memory and parameters of the model with its heads.
    pub outline: Box<dyn Outline>,
    /// Family and shape, including the vocabulary size.
    pub model: ModelConfig,
    /// Most tokens in one row.
    pub length: usize,
    /// Most rows that reach the head, except in causal phases.
    pub targets: TargetShare,
}

impl Shapes {
    /// Predicts the memory of a training step of `tokens` tokens, and of an evaluation batch.
    pub fn prediction(&self, tokens: u64, training: &TrainingConfig, place: Place) -> Prediction {
        let on = training.gradient_checkpointing.is_on();
        let evaluation_tokens = (training.per_device_eval_batch_size * self.length) as u64;
        let is_causal = training.causal_steps() > 0;
        let step = self.sizes(tokens, self.length, on, place).predicting_all(is_causal);
        let step = self.outline.memory(&step);
        let evaluation = self.outline.memory(&self.sizes(evaluation_tokens, self.length, on, place));
        let parameters = self.outline.num_parameters();
        let is_copied = !place.on_gpu && training.save_in_background && training.save_steps > 0;
        // The optimizer state of other processes is not in this process, except while a checkpoint gathers
        // it, in the memory of the CPU.
        let optimizer_bytes = 4 * self.state_values(training);
        let elsewhere = optimizer_bytes - optimizer_bytes / place.sharers as u64;
        let copied = if place.on_gpu { 0 } else { self.outline.layout().copied_bytes() };
        let gathered = if elsewhere > 0 && !place.on_gpu { optimizer_bytes } else { 0 };
        let exchanged = if place.overlaps { 4 * parameters } else { 0 };
        let average = if training.weight_average.is_some() { 4 * parameters } else { 0 };
        let more = summing_bytes(parameters, training, place)
            + batches_bytes(training, self.length, place)
            + exchanged
            + average;
        Prediction {
            state_bytes: step.state_bytes + optimizer_bytes + more - elsewhere - self.halved(training, place),
            temporary_bytes: step.temporary_bytes
                + optim::temporary_bytes(self.outline.layout(), training, place.compute),
            evaluation_bytes: evaluation.evaluation_bytes,
            saving_bytes: copied + if is_copied { self.checkpoint_bytes(training) } else { gathered },
            ..step
        }
    }

    /// Bytes that gradients in bf16 take less than in f32.
    fn halved(&self, training: &TrainingConfig, place: Place) -> u64 {
        if place.weight_gradients == DType::F32 || training.gradient_accumulation_steps > 1 {
            return 0;
        }
        2 * GradientPlaces::new(self.outline.layout()).half_len() as u64
    }

    /// Number of f32 values in the state of the optimizer.
    pub fn state_values(&self, training: &TrainingConfig) -> u64 {
        optim::state_values(self.outline.layout(), training)
    }

    /// Bytes of a checkpoint.
    pub fn checkpoint_bytes(&self, training: &TrainingConfig) -> u64 {
        optim::checkpoint_bytes(self.outline.layout(), training)
    }

    /// Returns the sizes of a step of `tokens` tokens in rows of `length`.
    pub fn sizes(&self, tokens: u64, length: usize, gradient_checkpointing: bool, place: Place) -> StepSizes {
        let targets = match self.targets {
            TargetShare::OfTokens(share) => (tokens as f64 * share).ceil() as u64,
            TargetShare::OneARow => tokens.div_ceil(length.max(1) as u64),
        };
        let Place { compute, on_gpu, .. } = place;
        StepSizes { tokens, length: length as u64, targets, compute, gradient_checkpointing, on_gpu }
    }
}

/// Bytes of the tree over which a process adds up its micro-batches, in addition to one set of gradients: one
/// further set per level (`layers/gradients`).
fn summing_bytes(parameters: u64, training: &TrainingConfig, place: Place) -> u64 {
    if place.on_gpu {
        0
    } else {
        4 * parameters * u64::from(leaves(training.gradient_accumulation_steps).ilog2())
    }
}

/// Bytes of the batches of one update and of the next one, which is prefetched. 0 on a GPU, where batches are
/// in host memory, which is not counted.
fn batches_bytes(training: &TrainingConfig, length: usize, place: Place) -> u64 {
    // Ids, types, positions and dropout keys of all tokens, and labels of some.
    const BYTES_PER_TOKEN: u64 = 24;
    if place.on_gpu { 0 } else { 2 * BYTES_PER_TOKEN * (training.rows_per_update() * length) as u64 }
}

/// Number of updates of a run: `max_steps`, or as many as the epochs need.
pub fn total_steps(training: &TrainingConfig, rows_per_epoch: u64) -> u64 {
    if training.max_steps >= 0 {
        return training.max_steps as u64;
    }
    let rows = training.num_train_epochs * rows_per_epoch as f64;
    ((rows / training.rows_per_update() as f64).ceil() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::families::{EncoderConfig, named_model};
    use model::models::Blueprint;

    /// Gradients of the linear maps of the layers and the head, and of the biases of queries, keys and values,
    /// take two bytes instead of four in steps of one micro-batch.
    #[test]
    fn gradients_in_bf16_take_half_the_memory() {
        let model = named_model("tiny").unwrap();
        let EncoderConfig { hidden_size, num_hidden_layers, intermediate_size, .. } = model.encoder;
        let outline = Box::new(Blueprint::masked_lm(&model));
        let shapes = Shapes { outline, model, length: 128, targets: TargetShare::OfTokens(0.15) };
        let place = Place::alone(DType::BF16, true);
        let half = Place { weight_gradients: DType::BF16, ..place };
        let [one, two] = [1, 2].map(|gradient_accumulation_steps| {
            let training = TrainingConfig { gradient_accumulation_steps, ..TrainingConfig::default() };
            let bytes = [place, half].map(|place| shapes.prediction(1024, &training, place).state_bytes);
            bytes[0] - bytes[1]
        });
        let layer = 4 * hidden_size * hidden_size + 2 * hidden_size * intermediate_size + 3 * hidden_size;
        let head = hidden_size * hidden_size;
        assert_eq!((one, two), (2 * (num_hidden_layers * layer + head) as u64, 0));
    }
}
