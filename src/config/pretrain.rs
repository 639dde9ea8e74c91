//! The whole configuration of `mlmtrain pretrain`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cache::CacheConfig;
use crate::data::DataConfig;
use crate::decay::DecayFrom;
use crate::distributed::DistributedConfig;
use crate::evaluation::EvaluationConfig;
use crate::mlm::MlmConfig;
use crate::model::ModelSection;
use crate::on_resume::OnResume;
use crate::precision::PrecisionConfig;
use crate::rtd::RtdConfig;
use crate::run::RunSection;
use crate::task::PretrainTask;
use crate::tokenizer::TokenizerConfig;
use crate::training::TrainingConfig;
use base::families::ModelConfig;

/// Everything that `pretrain` and `prepare` read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PretrainConfig {
    /// Output folder, seed, device.
    #[serde(default)]
    pub run: RunSection,
    /// Task of pretraining: `masked_lm`, with pairs of segments `next_sentence_prediction` or
    /// `sentence_order_prediction`, or `replaced_token_detection`, which is ELECTRA's when absent.
    #[schemars(extend("x-decides-losses" = true))]
    #[serde(default)]
    pub task: Option<PretrainTask>,
    /// The corpus and its split.
    pub data: DataConfig,
    /// The tokenizer.
    #[serde(default)]
    pub tokenizer: TokenizerConfig,
    /// Family and size of the model: a table named after the family, as `roberta:`.
    #[schemars(extend("x-decides-losses" = true))]
    pub model: ModelSection,
    /// Masking.
    #[schemars(extend("x-decides-losses" = true))]
    #[serde(default)]
    pub mlm: MlmConfig,
    /// Replaced-token detection.
    #[schemars(extend("x-decides-losses" = true))]
    #[serde(default)]
    pub rtd: RtdConfig,
    /// Batch, optimizer, schedule, cadence.
    #[schemars(extend("x-decides-losses" = true))]
    #[serde(default)]
    pub training: TrainingConfig,
    /// Precision.
    #[serde(default)]
    pub precision: PrecisionConfig,
    /// Probes on tasks while the model is trained.
    #[schemars(extend("x-on-resume" = OnResume::Free))]
    #[serde(default)]
    pub evaluation: EvaluationConfig,
    /// Cache of objects that URLs name.
    #[schemars(extend("x-on-resume" = OnResume::Free))]
    #[serde(default)]
    pub cache: CacheConfig,
    /// Several processes.
    #[serde(default)]
    pub distributed: DistributedConfig,
    /// A checkpoint whose learning rate is brought down, and nothing else; the flag `--decay-from` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decay_from: Option<DecayFrom>,
}

impl PretrainConfig {
    /// Returns a configuration with this model and all other keys at their defaults.
    pub fn of_model(model: ModelConfig) -> Self {
        Self {
            run: RunSection::default(),
            task: None,
            data: DataConfig::default(),
            tokenizer: TokenizerConfig::default(),
            model: ModelSection { tables: vec![model], ..ModelSection::default() },
            mlm: MlmConfig::default(),
            rtd: RtdConfig::default(),
            training: TrainingConfig::default(),
            precision: PrecisionConfig::default(),
            evaluation: EvaluationConfig::default(),
            cache: CacheConfig::default(),
            distributed: DistributedConfig::default(),
            decay_from: None,
        }
    }

    /// Returns the family and its encoder; `None` unless exactly one table of a family is given (validation
    /// reports that).
    pub fn model(&self) -> Option<ModelConfig> {
        match self.model.tables.as_slice() {
            [model] => Some(model.clone()),
            _ => None,
        }
    }

    /// Returns the task of pretraining; by default that of the family.
    pub fn task(&self) -> PretrainTask {
        self.task.unwrap_or_else(|| {
            self.model().map_or_else(PretrainTask::default, |model| PretrainTask::of(model.family))
        })
    }

    /// Fills in the absent keys that depend on the task, and the task itself.
    #[must_use]
    pub fn with_task_defaults(mut self) -> Self {
        // The task of a model folder is known only when the folder is read.
        if self.task.is_none() && self.model.path.is_some() {
            return self;
        }
        let task = self.task();
        self.task = Some(task);
        let masking = MlmConfig::of(task);
        self.mlm.mask_replace_prob = self.mlm.mask_replace_prob.or(masking.mask_replace_prob);
        self.mlm.random_replace_prob = self.mlm.random_replace_prob.or(masking.random_replace_prob);
        self
    }

    /// Returns the folder of the tokenizer and the shards.
    pub fn prepared_dir(&self) -> PathBuf {
        self.data.prepared_dir.clone().unwrap_or_else(|| self.run.output_dir.join("data"))
    }
}
