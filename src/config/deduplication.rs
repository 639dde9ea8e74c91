//! Which documents are left out because they were there before.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

/// Deduplication over all sources; the first of several stays. Off by default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DeduplicationConfig {
    /// Leave out documents whose text was there before.
    pub exact: bool,
    /// Leave out documents that are nearly like an earlier one: the least Jaccard similarity, such as 0.8.
    pub near_threshold: Option<f64>,
}
