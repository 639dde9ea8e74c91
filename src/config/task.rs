//! What a model is trained for, by name.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

/// What `pretrain` trains for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PretrainTask {
    /// Finding masked tokens again.
    #[default]
    MaskedLm,
}

/// What `finetune` trains for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum FinetuneTask {
    /// One label for each text, or pair of texts.
    #[default]
    Classify,
}
