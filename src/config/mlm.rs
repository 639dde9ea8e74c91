//! How tokens are masked.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

/// Masking of tokens for the masked language model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MlmConfig {
    /// Share of the non-special tokens to predict.
    pub mlm_probability: f64,
    /// Share of those replaced by the mask token.
    pub mask_replace_prob: f64,
    /// Share of those replaced by a random token; the rest stays as it is.
    pub random_replace_prob: f64,
}

impl Default for MlmConfig {
    fn default() -> Self {
        Self { mlm_probability: 0.15, mask_replace_prob: 0.8, random_replace_prob: 0.1 }
    }
}
