//! The filter by lists of words.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Leaves out documents with words of lists. Off while `files` is empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WordsFilter {
    /// Files with one word or phrase a line; `#` begins a comment line, case and punctuation do not matter.
    #[schemars(inner(length(min = 1)), extend("x-path" = true))]
    pub files: Vec<String>,
    /// Most occurrences in a document; 0 when both this and `max_share` are absent.
    pub max_count: Option<u64>,
    /// Largest share of the document's words.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub max_share: Option<f64>,
}
