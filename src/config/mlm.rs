//! How tokens are masked.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

/// What is chosen as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MaskingUnit {
    /// Each token for itself (BERT, RoBERTa).
    Token,
    /// All tokens of a word together.
    WholeWord,
    /// Runs of one to ten words, short ones more often (SpanBERT).
    Span,
}

/// Masking of tokens for the masked language model. Evaluation is always by token, 15 %, 80/10/10.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MlmConfig {
    /// What is chosen as one.
    pub masking: MaskingUnit,
    /// Share of the non-special tokens to predict.
    pub mlm_probability: f64,
    /// That share at the last step: it changes along a straight line over the run. It stays the same when
    /// absent.
    pub mlm_probability_end: Option<f64>,
    /// Share of those replaced by the mask token.
    pub mask_replace_prob: f64,
    /// Share of those replaced by a random token; the rest stays as it is.
    pub random_replace_prob: f64,
}

impl Default for MlmConfig {
    fn default() -> Self {
        Self {
            masking: MaskingUnit::Token,
            mlm_probability: 0.15,
            mlm_probability_end: None,
            mask_replace_prob: 0.8,
            random_replace_prob: 0.1,
        }
    }
}
