//! The fine-tuning run of any task: labelled examples, a pretrained encoder and a new head.
//!
//! `training_data.rs` has the batches and evaluations of a run, `opened.rs` a trained model. A
//! [`FinetuningTask`] has what differs between tasks.

mod judge;
mod opened;
mod teacher;
mod training_data;

use anyhow::Result;
use candle_core::Device;

use crate::machine::Machine;
use crate::tasks::finetuning_task::{Examples, FinetuningTask, Input, best};
use crate::tasks::planned::Planned;
use crate::tasks::run::{Inputs, Kind, ModelFolder, Parts, Setting, Shapes, total_steps};
use crate::tasks::{Supervised, Task, planned, start};
use base::error::Problem;
use base::families::ModelConfig;
use config::{Distillation, FinetuneConfig};
use model::interop::{HubConfig, PretrainedFolder};
use model::models::{Blueprint, Model, Objective};

pub use opened::Opened;
pub use teacher::Teacher;
pub use training_data::TrainingData;

/// Rows whose tokens a plan counts at once.
const ROWS_AT_ONCE: usize = 256;

impl<T: FinetuningTask> Examples<T> {
    /// Returns an error if there is no training example.
    pub fn require_some(&self) -> Result<(), Problem> {
        match self.num_train() {
            0 => Err(Problem::usage("leaves no example to train on").at("data.train_file")),
            _ => Ok(()),
        }
    }

    /// Returns what a run starting from `folder` would read, without loading the weights. Invalid lengths in
    /// the configuration are an error, as in a run.
    pub fn planned(&self, config: &FinetuneConfig, folder: &PretrainedFolder) -> Result<Planned> {
        let length = config.data.sequence_length();
        let (tokenizer, collator) = T::Input::framing(folder, length, Some(config))?;
        let tokenizer = start::splitting(config, tokenizer);
        let (train, unusual_train) = T::Input::encode(&tokenizer, &collator, &self.train.rows)?;
        let (_, unusual_eval) = T::Input::encode(&tokenizer, &collator, &self.eval.rows)?;
        let both = [
            T::Input::lengths(&self.train.rows, &unusual_train),
            T::Input::lengths(&self.eval.rows, &unusual_eval),
        ];
        let words = T::Input::WORDS;
        let lines = vec![
            (words.labels, self.target.described(&self.train.gold)),
            (words.longest, planned::longest(both)),
            (words.too_long, planned::too_long(both, &T::Input::too_long(length))),
        ];
        let mut tokens = 0;
        for rows in train.chunks(ROWS_AT_ONCE) {
            let rows: Vec<&_> = rows.iter().collect();
            tokens += T::Input::batch(&collator, &rows, 0).num_tokens() as u64;
        }
        Ok(Planned { rows: train.len(), tokens, lines })
    }

    /// Returns the run of one seed, starting from the encoder of `folder`.
    pub fn kind<'a>(&'a self, config: &'a FinetuneConfig, folder: &'a PretrainedFolder) -> Finetuning<'a, T> {
        Finetuning { config, folder, examples: self }
    }
}

/// A configuration, with the model folder and the examples that it names.
pub struct Finetuning<'a, T: FinetuningTask> {
    config: &'a FinetuneConfig,
    folder: &'a PretrainedFolder,
    examples: &'a Examples<T>,
}

/// The model of a task.
type Supervisor<T> = Supervised<<<T as FinetuningTask>::Input as Input>::Head>;

impl<T: FinetuningTask> Finetuning<'_, T> {
    /// The model before its initial values, and its architecture.
    fn blueprint(&self, objective: Objective) -> Result<Blueprint<<T::Input as Input>::Head>> {
        let model = start::model_of(self.config, &self.folder.config)?;
        let mut blueprint =
            blueprint::<T>(self.folder, &model, self.examples.target.names().len(), objective)?;
        start::follow(&self.config.training, &mut blueprint.encoder)?;
        Ok(blueprint)
    }
}

impl<'a, T: FinetuningTask> Kind for Finetuning<'a, T> {
    type Task = Supervisor<T>;
    type Data = TrainingData<'a, T>;

    fn shapes(&self) -> Result<Shapes> {
        let outline = self.blueprint(Objective::of(T::HEAD))?;
        Ok(Shapes {
            model: outline.config.clone(),
            outline: Box::new(outline),
            length: self.config.data.sequence_length(),
            targets: T::Input::REACH_HEAD,
        })
    }

    fn inputs(&self) -> Result<Inputs> {
        let Self { folder, examples, .. } = self;
        let mut hashes = vec![
            ("data.train_file", start::sha256_of(examples.train.rows.iter().map(T::content))?),
            ("data.eval_file", start::sha256_of(examples.eval.rows.iter().map(T::content))?),
        ];
        if let Some(test) = &examples.test {
            hashes.push(("data.test_file", start::sha256_of(test.rows.iter().map(T::content))?));
        }
        if let Some(teacher) = examples.teacher(self.config)? {
            hashes.push(("distillation.teacher", teacher.folder.sha256()?));
        }
        start::inputs(folder, hashes, &examples.target.resumed_names(&self.config.data))
    }

    fn build(self, setting: Setting<'_>) -> Result<Parts<Self::Task, Self::Data>> {
        let Self { config, folder, examples } = self;
        let Setting { training, machine, seed, progress, .. } = setting;
        let names = examples.target.names();
        let length = config.data.sequence_length();
        let mut objective = examples.target.objective(training, &examples.train.gold)?;
        // First of all: the memory of the teacher is free again when the student needs its own.
        let taught = examples.taught(config, &setting)?;
        if let Some(Distillation { weight, temperature, .. }) = config.distillation {
            objective = Objective::Distilled { of_labels: Box::new(objective), weight, temperature };
        }
        let (tokenizer, collator) = T::Input::framing(folder, length, Some(config))?;
        let blueprint = self.blueprint(objective)?;
        let model = if folder.is_untrained() {
            blueprint.initialise(seed, &machine.device)?
        } else {
            blueprint.initialise_head(seed, &machine.device)?
        };
        let filled = folder.fill_labelled(&model.parameters, T::HEAD, names)?;
        start::tell(config, folder, &filled, progress);
        let mut hub = HubConfig::new(model.config.clone(), T::HEAD, Some(names.to_vec()));
        hub.extra.clone_from(&folder.extra);
        let task = Supervised { model }.computing_in(machine.policy.compute)?;
        // Stores the length in the folder, so that examples are cut at the same length when it is used.
        let tokenizer = start::for_texts(config, tokenizer, progress).with_model_max_length(length);
        let mut model_folder = ModelFolder::whole(&hub, &tokenizer, task.model.parameters.layout());
        model_folder.files.extend(T::Input::files(config));
        let data = TrainingData::encode(examples, taught, &tokenizer, collator, setting)?;
        let total_steps = total_steps(training, data.rows_per_epoch());
        Ok(Parts { task, data, total_steps, folders: vec![model_folder], best: best::<T>() })
    }
}

fn blueprint<T: FinetuningTask>(
    folder: &PretrainedFolder,
    model: &ModelConfig,
    outputs: usize,
    objective: Objective,
) -> Result<Blueprint<<T::Input as Input>::Head>> {
    T::Input::blueprint(model, outputs, objective)
        .map_err(|e| Problem::new(e.to_string()).at(folder.path.display()).into())
}

/// The model of a folder of the task, to be filled from it.
fn model_of<T: FinetuningTask>(
    folder: &PretrainedFolder,
    device: &Device,
) -> Result<Model<<T::Input as Input>::Head>> {
    let outputs = folder.id2label.as_ref().map_or(0, Vec::len);
    Ok(blueprint::<T>(folder, &folder.config, outputs, Objective::of(T::HEAD))?.zeros(device)?)
}

/// Builds the task of a model folder, without reading the values of its parameters.
pub(super) fn unfilled<T: FinetuningTask>(
    folder: &PretrainedFolder,
    machine: &Machine,
) -> Result<Box<dyn Task>> {
    let model = model_of::<T>(folder, &machine.device)?;
    Ok(Box::new(Supervised { model }.computing_in(machine.policy.compute)?))
}
