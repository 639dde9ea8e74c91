//! The whole configuration of `mlmtrain pretrain`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

use crate::config::data::DataConfig;
use crate::config::mlm::MlmConfig;
use crate::config::model::ModelSection;
use crate::config::precision::PrecisionConfig;
use crate::config::run::RunSection;
use crate::config::task::PretrainTask;
use crate::config::tokenizer::TokenizerConfig;
use crate::config::training::TrainingConfig;
use crate::families::ModelConfig;

/// Everything that `pretrain` and `prepare` read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PretrainConfig {
    /// Output folder, seed, device.
    #[serde(default)]
    pub run: RunSection,
    /// What the model is trained for.
    #[serde(default)]
    pub task: PretrainTask,
    /// The corpus and its split.
    pub data: DataConfig,
    /// The tokenizer.
    #[serde(default)]
    pub tokenizer: TokenizerConfig,
    /// Family and size of the model: a table `roberta:` or `bert:`.
    pub model: ModelSection,
    /// Masking.
    #[serde(default)]
    pub mlm: MlmConfig,
    /// Batch, optimizer, schedule, cadence.
    #[serde(default)]
    pub training: TrainingConfig,
    /// Precision.
    #[serde(default)]
    pub precision: PrecisionConfig,
}

impl PretrainConfig {
    /// The chosen family and its encoder; `None` unless exactly one family table is there (validation reports
    /// that).
    pub fn model(&self) -> Option<ModelConfig> {
        match self.model.tables.as_slice() {
            [model] => Some(model.clone()),
            _ => None,
        }
    }

    /// Folder of the tokenizer and the shards.
    pub fn prepared_dir(&self) -> PathBuf {
        self.data.prepared_dir.clone().unwrap_or_else(|| self.run.output_dir.join("data"))
    }
}
