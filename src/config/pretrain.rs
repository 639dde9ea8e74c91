//! The whole configuration of `mlmtrain pretrain`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Deserializer;
use serde::Serialize;
use serde::de::Error;
use serde_json::Map;
use serde_json::Value;

use crate::config::data::DataConfig;
use crate::config::device::DeviceChoice;
use crate::config::mlm::MlmConfig;
use crate::config::model::EncoderConfig;
use crate::config::model::Family;
use crate::config::model::ModelConfig;
use crate::config::precision::PrecisionConfig;
use crate::config::tokenizer::TokenizerConfig;
use crate::config::training::TrainingConfig;

/// Where results go and what everything random starts from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunSection {
    /// Folder of checkpoints, metrics and the final model.
    pub output_dir: PathBuf,
    /// Seed of initialisation, order, masking and dropout.
    pub seed: u64,
    /// Where to compute. `auto` takes the first GPU if there is one that can be used, and says why not if
    /// there is none; `cuda` or `cuda:1` is an error without it.
    pub device: DeviceChoice,
    /// Threads of the one pool that everything computes in; 0 means one for each core that this process may
    /// use, by its CPU affinity and its cgroup's CPU quota.
    pub threads: usize,
    /// What the machine costs an hour, in US dollars: then costs are reported, too.
    pub usd_per_hour: Option<f64>,
    /// Also write TensorBoard events, into `<output_dir>/runs`.
    pub tensorboard: bool,
    /// A sentence with mask tokens that is filled in at the end, to look at.
    pub sample_text: Option<String>,
}

impl Default for RunSection {
    fn default() -> Self {
        Self {
            output_dir: PathBuf::from("runs/default"),
            seed: 42,
            device: DeviceChoice::Auto,
            threads: 0,
            usd_per_hour: None,
            tensorboard: true,
            sample_text: None,
        }
    }
}

/// The model: one table, named after the family.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelSection {
    /// A RoBERTa encoder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roberta: Option<EncoderConfig>,
    /// A BERT encoder. Absent keys take BERT's own defaults.
    #[serde(default, deserialize_with = "bert", skip_serializing_if = "Option::is_none")]
    pub bert: Option<EncoderConfig>,
}

/// Fills absent keys with BERT's defaults: serde's own `default` knows one family only.
fn bert<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<EncoderConfig>, D::Error> {
    let Some(given) = Option::<Map<String, Value>>::deserialize(deserializer)? else { return Ok(None) };
    let mut all = serde_json::to_value(EncoderConfig::of(Family::Bert)).map_err(D::Error::custom)?;
    if let Some(table) = all.as_object_mut() {
        table.extend(given);
    }
    EncoderConfig::deserialize(all).map(Some).map_err(D::Error::custom)
}

/// Everything that `pretrain` and `prepare` read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PretrainConfig {
    /// Output folder, seed, device.
    #[serde(default)]
    pub run: RunSection,
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
        match (&self.model.roberta, &self.model.bert) {
            (Some(encoder), None) => Some(ModelConfig { family: Family::Roberta, encoder: encoder.clone() }),
            (None, Some(encoder)) => Some(ModelConfig { family: Family::Bert, encoder: encoder.clone() }),
            _ => None,
        }
    }

    /// Folder of the tokenizer and the shards.
    pub fn prepared_dir(&self) -> PathBuf {
        self.data.prepared_dir.clone().unwrap_or_else(|| self.run.output_dir.join("data"))
    }
}
