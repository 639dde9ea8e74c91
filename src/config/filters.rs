//! Which documents (and lines) are left out for what they are.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

/// Filters; all are off by default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FiltersConfig {
    /// Fewest characters of a document.
    pub min_chars: Option<u64>,
}
