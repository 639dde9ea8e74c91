//! Which documents are left out (or reported) because they hold text of evaluation files.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

/// N-gram overlap with evaluation files. Off while `files` is empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ContaminationConfig {
    /// Files that a model will be evaluated on: .csv, .tsv, .jsonl, or text.
    pub files: Vec<String>,
}
