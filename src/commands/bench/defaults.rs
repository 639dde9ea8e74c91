//! The model of a name, a folder or a configuration, and the settings of its steps.

use std::path::Path;

use anyhow::Result;

use crate::commands::terminal;
use crate::config::{
    AnyLoaded, BatchSize, ComputeType, FinetuneConfig, MuonConfig, OptimizerType, PrecisionConfig,
    PretrainConfig, RtdConfig, TrainingConfig, WeightGradients,
};
use crate::error::Problem;
use crate::families::{HeadKind, MODEL_NAMES, ModelConfig, named_model};
use crate::interop::{HubConfig, read_folder};
use crate::precision::Hardware;
use crate::tasks::pretraining::{most_masked, origin, planned_model};
use crate::train::bench::TimedTask;
use crate::{config, fs};

/// Default share of masked tokens, without a configuration.
const MASKED_SHARE: f64 = 0.15;

/// Default number of rows, without a flag or a configuration.
const BATCH: usize = 8;

/// Default row length in tokens, without a flag or a configuration.
const LENGTH: usize = 128;

/// Default number of labels of a classifier, as in AG News.
pub(super) const LABELS: usize = 4;

/// A model, and the settings of its steps unless a flag changes them.
pub(super) struct Defaults {
    pub(super) model: ModelConfig,
    /// The task of the configuration or of the head of a model folder, or pretraining.
    pub(super) task: TimedTask,
    pub(super) batch: usize,
    pub(super) length: usize,
    pub(super) compute: ComputeType,
    pub(super) weight_gradients: WeightGradients,
    pub(super) optim: OptimizerType,
    pub(super) muon: MuonConfig,
}

impl Defaults {
    /// Returns the defaults for `name`: a named model, a model folder, or a configuration file.
    pub(super) fn new(name: &str) -> Result<Self> {
        let path = Path::new(name);
        if let Some(model) = named_model(name) {
            return Ok(Self::of_model(model, pretraining()));
        }
        if path.is_dir() {
            let HubConfig { model, head, id2label, .. } = HubConfig::read(&path.join("config.json"))?;
            let labels = id2label.map_or(LABELS, |names| names.len());
            let is_fine_tuned = head.is_some_and(HeadKind::has_labels);
            let task = if is_fine_tuned { TimedTask::Classification { labels } } else { pretraining() };
            return Ok(Self::of_model(model, task));
        }
        if !fs::exists(path) {
            let problem = Problem::usage(format!(
                "`{}` is neither a model's name nor a file",
                terminal::printable(name)
            ))
            .at("--model");
            return Err(problem
                .hint(format!(
                    "take {}, or the path of a model folder or of a configuration of `pretrain` or `finetune`",
                    MODEL_NAMES.join(", ")
                ))
                .into());
        }
        match config::load_any(path, &[])? {
            AnyLoaded::Pretrain(loaded) => Self::of_pretraining(&loaded.config),
            AnyLoaded::Finetune(loaded) | AnyLoaded::Sweep(loaded) => Self::of_finetuning(&loaded.config),
            AnyLoaded::Tasks(_) => {
                let message = "holds tasks of a comparison, and one configuration or model is wanted";
                Err(Problem::usage(message).at(name).hint("name a model folder").into())
            }
        }
    }

    fn of_model(model: ModelConfig, task: TimedTask) -> Self {
        let length = LENGTH.min(model.max_sequence_length());
        let TrainingConfig { optim, muon, .. } = TrainingConfig::default();
        let weight_gradients = WeightGradients::F32;
        Self { model, task, batch: BATCH, length, compute: ComputeType::F32, weight_gradients, optim, muon }
    }

    fn of_pretraining(config: &PretrainConfig) -> Result<Self> {
        let (config, _) = origin::resolve(config)?;
        let task = TimedTask::Pretraining {
            task: config.task,
            rtd: config.rtd.clone(),
            masked_share: most_masked(&config.mlm),
        };
        let length = config.data.max_seq_length;
        Ok(Self::of_sections(planned_model(&config)?, task, length, &config.training, &config.precision))
    }

    /// Steps of a classifier, because heads cost little.
    fn of_finetuning(config: &FinetuneConfig) -> Result<Self> {
        let model = read_folder(&config.model)?.config;
        let labels = if config.data.labels.is_empty() { LABELS } else { config.data.labels.len() };
        let length = config.data.max_seq_length.unwrap_or(LENGTH).min(model.max_sequence_length());
        let task = TimedTask::Classification { labels };
        Ok(Self::of_sections(model, task, length, &config.training, &config.precision))
    }

    fn of_sections(
        model: ModelConfig,
        task: TimedTask,
        length: usize,
        training: &TrainingConfig,
        precision: &PrecisionConfig,
    ) -> Self {
        Self {
            model,
            task,
            batch: match training.per_device_train_batch_size {
                BatchSize::Rows(rows) => rows,
                BatchSize::Auto => BATCH,
            },
            length,
            // The type that a run would choose on a CPU; for a GPU there is a flag.
            compute: precision.compute.known().unwrap_or_else(|| Hardware::cpu().best()),
            weight_gradients: precision.weight_gradients,
            optim: training.optim,
            muon: training.muon.clone(),
        }
    }
}

/// Pretraining without a configuration.
pub(super) fn pretraining() -> TimedTask {
    TimedTask::Pretraining { task: None, rtd: RtdConfig::default(), masked_share: MASKED_SHARE }
}
