//! What a task brings along for a whole run: its model, its data, its files and its scores.
//!
//! The skeleton that all runs share is `train/run.rs`; it knows none of them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use crate::batches::Cursor;
use crate::batches::Planner;
use crate::batches::StepBatches;
use crate::config::TrainingConfig;
use crate::distributed::leaves;
use crate::families::ModelConfig;
use crate::families::SpecialRole;
use crate::interop::HubConfig;
use crate::layers::Layout;
use crate::machine::Machine;
use crate::machine::Place;
use crate::models::memory::Outline;
use crate::models::memory::Prediction;
use crate::models::memory::StepSizes;
use crate::models::memory::checkpoint_bytes;
use crate::scores::Better;
use crate::tasks::Task;
use crate::telemetry::Progress;
use crate::tokenizer::Tokenizer;

/// The description of a model in its folder.
const CONFIG_JSON: &str = "config.json";

/// Scores by Trainer's names.
pub type Scores = Vec<(String, f64)>;

/// What a run is made from besides its configuration: a hash of each input, by the key that names it.
pub type Inputs = BTreeMap<String, String>;

/// What a run is built with.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// Batch, optimizer and schedule, with numbers for what the configuration leaves open.
    pub training: &'a TrainingConfig,
    /// What is computed on.
    pub machine: &'a Machine,
    /// Seed of initial values, order, masks and dropout.
    pub seed: u64,
    /// Takes what a user should know.
    pub progress: &'a Progress,
    /// Whether the initial values will be trained on, and not overwritten by those of a checkpoint.
    pub is_beginning: bool,
}

/// A kind of run.
pub trait Kind: Send {
    /// What is trained.
    type Task: Task + Send;
    /// What it is trained on.
    type Data: Data + Send;

    /// The sizes of its steps.
    fn shapes(&self) -> Result<Shapes>;

    /// Hashes of what it learns from: a run goes on with the same ones only.
    fn inputs(&self) -> Result<Inputs>;

    /// All parts, with initial values. What would fail at the end of a run should fail here.
    fn build(self, setting: Setting<'_>) -> Result<Parts<Self::Task, Self::Data>>;
}

/// The parts of a run.
pub struct Parts<T, D> {
    /// What is trained.
    pub task: T,
    /// What it is trained on.
    pub data: D,
    /// Updates in all.
    pub total_steps: u64,
    /// The model folders that each checkpoint holds.
    pub folders: Vec<ModelFolder>,
    /// The score that decides which checkpoint is best, and which way is better.
    pub best: (&'static str, Better),
}

/// Where a run begins.
#[derive(Debug, Clone)]
pub struct Beginning {
    /// Where the next batch comes from.
    pub cursor: Cursor,
    /// Updates that are done.
    pub step: u64,
    /// Updates in all.
    pub total_steps: u64,
}

/// Where batches and scores come from.
pub trait Data {
    /// From the next start on, batches that are made by threads of their own are shown to `planner` there.
    fn plan_with(&mut self, _planner: Planner) {}

    /// Gets ready to give the steps from `beginning` on.
    fn start(&mut self, beginning: Beginning) -> Result<()>;

    /// The micro-batches of the next step.
    fn next_step(&mut self) -> Result<StepBatches>;

    /// Takes back the step that was trained on, to use its memory again.
    fn give_back(&mut self, _step: StepBatches) {}

    /// Scores of the model as it is, `loss` first; `None` where it was interrupted. What the model predicted
    /// may be kept until the next evaluation.
    fn evaluate(&mut self, task: &dyn Task, interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>>;

    /// The share that each source has of the tokens of the step after `steps_done`, where that changes during
    /// the run.
    fn mix(&self, _steps_done: u64) -> Vec<(String, f64)> {
        Vec::new()
    }

    /// The names of the scores that evaluations may give.
    fn score_names(&self) -> Vec<String> {
        vec!["loss".to_string()]
    }

    /// Whether [`Data::finish`] needs an evaluation of the final model in this process.
    fn wants_evaluation(&self) -> bool {
        false
    }

    /// Files that belong into the folder of the final model beside its own, by what its last evaluation
    /// found.
    fn model_files(&self) -> Vec<(String, Vec<u8>)> {
        Vec::new()
    }

    /// Bytes that [`Data::finish`] writes, at most.
    fn finish_bytes(&self) -> u64 {
        0
    }

    /// Writes what belongs beside the final model into the run's folder `output`; scores that need no model,
    /// or `None` where it was interrupted.
    fn finish(&mut self, _output: &Path, _interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        Ok(Some(Scores::new()))
    }
}

/// A folder that transformers loads: the weights of some parameters, and the files beside them.
#[derive(Debug, Clone)]
pub struct ModelFolder {
    /// Its place below a checkpoint, with a slash at the end; empty where it is the checkpoint itself.
    pub place: &'static str,
    /// `config.json` and the files of the tokenizer.
    pub files: Vec<(String, Vec<u8>)>,
    /// The parameters that it holds, with the names that they have in it.
    pub names: Vec<(String, String)>,
    /// Parameters of which it holds the sum with another one of the run, each with that one.
    pub added: Vec<(String, String)>,
}

impl ModelFolder {
    /// The only model of a run, its parameters by their own names.
    pub fn whole(config: &HubConfig, tokenizer: &Tokenizer, layout: &Layout) -> Self {
        Self::new("", config, tokenizer, layout.own_names())
    }

    /// A model at `place`, with the parameters of `names`: as the run and as the folder calls them.
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

    /// Its files, `config.json` with this base of the angles of layers that attend to all tokens, where it is
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

    /// Refuses a model whose `config.json` could not be read again.
    pub fn require_readable(&self) -> Result<()> {
        let mut configs = self.files.iter().filter(|(name, _)| name == CONFIG_JSON);
        configs.try_for_each(|(_, bytes)| HubConfig::require_readable(bytes))
    }

    /// The same with the sums of these pairs of parameters under the names of the first ones.
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

/// Rows that reach a head.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TargetShare {
    /// This share of the tokens.
    OfTokens(f64),
    /// One a row.
    OneARow,
}

/// The sizes of a run's steps, as far as memory goes.
pub struct Shapes {
    /// What is trained.
    pub outline: Box<dyn Outline>,
    /// Family and shape, the vocabulary included.
    pub model: ModelConfig,
    /// Tokens of a row at most.
    pub length: usize,
    /// Rows that reach the head at most.
    pub targets: TargetShare,
}

impl Shapes {
    /// Memory of a step of `tokens` tokens, and of a batch of evaluation.
    pub fn prediction(&self, tokens: u64, training: &TrainingConfig, place: Place) -> Prediction {
        let on = training.gradient_checkpointing.is_on();
        let of = |tokens| self.outline.memory(&self.sizes(tokens, self.length, on, place));
        let evaluated = (training.per_device_eval_batch_size * self.length) as u64;
        let (step, parameters) = (of(tokens), self.outline.num_parameters());
        let is_copied = !place.on_gpu && training.save_in_background && training.save_steps > 0;
        // Moments of other processes are not here, but for those of a checkpoint.
        let moments = 8 * parameters;
        let elsewhere = moments - moments / place.sharers as u64;
        let gathered = if elsewhere > 0 { moments } else { 0 };
        let exchanged = if place.overlaps { 4 * parameters } else { 0 };
        let more = summing_bytes(parameters, training, place)
            + batches_bytes(training, self.length, place)
            + exchanged;
        Prediction {
            state_bytes: (step.state_bytes + more).saturating_sub(elsewhere),
            evaluation_bytes: of(evaluated).evaluation_bytes,
            saving_bytes: if is_copied { checkpoint_bytes(parameters) } else { gathered },
            ..step
        }
    }

    /// Sizes of a step of `tokens` tokens in rows of `length`.
    pub fn sizes(&self, tokens: u64, length: usize, gradient_checkpointing: bool, place: Place) -> StepSizes {
        let targets = match self.targets {
            TargetShare::OfTokens(share) => (tokens as f64 * share).ceil() as u64,
            TargetShare::OneARow => tokens.div_ceil(length.max(1) as u64),
        };
        let Place { compute, on_gpu, .. } = place;
        StepSizes { tokens, length: length as u64, targets, compute, gradient_checkpointing, on_gpu }
    }
}

/// What the tree takes over which a process adds up its micro-batches, beside one set of gradients: one more for
/// each level (`layers/gradients`).
fn summing_bytes(parameters: u64, training: &TrainingConfig, place: Place) -> u64 {
    if place.on_gpu {
        0
    } else {
        4 * parameters * u64::from(leaves(training.gradient_accumulation_steps).ilog2())
    }
}

/// Bytes of the batches of an update and of the next one, which is prefetched. On a GPU they are in the memory of the
/// host, which is not counted.
fn batches_bytes(training: &TrainingConfig, length: usize, place: Place) -> u64 {
    // Ids, types, positions and keys of tokens, and labels of some.
    const BYTES_PER_TOKEN: u64 = 24;
    if place.on_gpu { 0 } else { 2 * BYTES_PER_TOKEN * (training.rows_per_update() * length) as u64 }
}

/// Updates of a run: `max_steps`, or as many as the epochs need.
pub fn total_steps(training: &TrainingConfig, rows_per_epoch: u64) -> u64 {
    if training.max_steps >= 0 {
        return training.max_steps as u64;
    }
    let rows = training.num_train_epochs * rows_per_epoch as f64;
    ((rows / training.rows_per_update() as f64).ceil() as u64).max(1)
}
