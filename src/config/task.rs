//! What a model is trained for, by name.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

use crate::families::Family;

/// What `pretrain` trains for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum PretrainTask {
    /// Finding masked tokens again.
    #[default]
    MaskedLm,
    /// Telling the tokens that a generator put in from the original ones (ELECTRA).
    ReplacedTokenDetection,
}

impl PretrainTask {
    /// What models of a family are pretrained for unless a configuration says otherwise.
    pub fn of(family: Family) -> Self {
        let is_usual = family.replaced_tokens.is_some_and(|form| form.is_usual);
        if is_usual { Self::ReplacedTokenDetection } else { Self::MaskedLm }
    }
}

/// What `finetune` trains for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum FinetuneTask {
    /// One label for each text, or pair of texts.
    #[default]
    Classify,
    /// A number, or several, for each text, or pair of texts.
    Regression,
    /// A tag for each word of a sentence, such as the entities of a text.
    TokenClassify,
}
