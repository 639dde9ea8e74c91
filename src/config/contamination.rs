//! Removal or reports of documents that contain text of evaluation files.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Action on a document that contains text of an evaluation file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContaminationAction {
    /// Leave it out.
    Drop,
    /// Keep it, and count it.
    Report,
}

/// N-gram overlap with evaluation files (Brown et al. 2020, appendix C). Off while `files` is empty.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ContaminationConfig {
    /// Files that a model will be evaluated on: .csv and .tsv (all columns), .jsonl (all texts), or lines of
    /// text.
    #[schemars(inner(length(min = 1)), extend("x-path" = true))]
    pub files: Vec<String>,
    /// Drop or report.
    pub action: ContaminationAction,
    /// Words of a sequence that must not occur in both; shorter examples count as a whole from 8 words on.
    #[schemars(range(min = 2, max = 64))]
    pub ngram_words: usize,
    /// Fewest such sequences in a document; an example that occurs as a whole is always enough.
    #[schemars(range(min = 1))]
    pub min_overlap: u64,
}

impl Default for ContaminationConfig {
    fn default() -> Self {
        Self { files: Vec::new(), action: ContaminationAction::Drop, ngram_words: 13, min_overlap: 1 }
    }
}
