//! The section `mlm`: masking of tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::task::PretrainTask;

/// The unit that is masked as a whole.
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

/// Masking of tokens for the masked language model, or for the generator of replaced-token detection.
/// Evaluation is always by token, 15 %, with the task's own shares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MlmConfig {
    /// The unit that is masked as a whole.
    pub masking: MaskingUnit,
    /// Share of the non-special tokens to predict.
    #[schemars(
        range(max = 1.0),
        example = 0.15,
        extend(
            "exclusiveMinimum" = 0,
            "x-foreign-names" = ["mask_prob", "masking_probability", "mask_probability"],
        ),
    )]
    pub mlm_probability: f64,
    /// That share at the last step: it changes along a straight line over the run. It stays the same when
    /// absent.
    #[schemars(range(max = 1.0), example = 0.15, extend("exclusiveMinimum" = 0))]
    pub mlm_probability_end: Option<f64>,
    /// Share of those replaced by the mask token; when absent 0.8, for replaced-token detection 0.85.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub mask_replace_prob: Option<f64>,
    /// Share of those replaced by a random token; the rest stays as it is. When absent 0.1, for
    /// replaced-token detection 0.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub random_replace_prob: Option<f64>,
}

/// Shares of the tokens to predict that BERT replaces by the mask token and by a random token.
const BERT_SHARES: (f64, f64) = (0.8, 0.1);

impl MlmConfig {
    /// Returns the usual masking of a task: that of BERT (section 3.1 of its paper), or that of ELECTRA's
    /// code.
    pub fn of(task: PretrainTask) -> Self {
        let (mask, random) = match task {
            PretrainTask::ReplacedTokenDetection => (0.85, 0.0),
            PretrainTask::MaskedLm
            | PretrainTask::NextSentencePrediction
            | PretrainTask::SentenceOrderPrediction => BERT_SHARES,
        };
        Self { mask_replace_prob: Some(mask), random_replace_prob: Some(random), ..Self::default() }
    }

    /// Returns the shares of the tokens to predict that become a mask token and a random token.
    pub fn replaced_shares(&self) -> (f64, f64) {
        let (mask, random) = BERT_SHARES;
        (self.mask_replace_prob.unwrap_or(mask), self.random_replace_prob.unwrap_or(random))
    }
}

impl Default for MlmConfig {
    fn default() -> Self {
        Self {
            masking: MaskingUnit::Token,
            mlm_probability: 0.15,
            mlm_probability_end: None,
            mask_replace_prob: None,
            random_replace_prob: None,
        }
    }
}
