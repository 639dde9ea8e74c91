//! The filter by perplexity: good text teaches a model of its characters, which other text may surprise.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Leaves out documents whose characters surprise an n-gram model of good text. Off while `max_perplexity` is
/// absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PerplexityFilter {
    /// Files of good text that the model learns from, read like evaluation files: .jsonl, .csv, .tsv, or
    /// lines of text.
    #[schemars(inner(length(min = 1)), extend("x-path" = true))]
    pub reference_files: Vec<String>,
    /// Largest perplexity of a character, such as 30: to a model of Finnish headlines, most Finnish web
    /// pages have 5 to 30, English ones 38 to 96. The report shows what was measured.
    #[schemars(example = 30, extend("exclusiveMinimum" = 1))]
    pub max_perplexity: Option<f64>,
    /// Characters of the longest sequence that is counted.
    #[schemars(range(min = 2, max = 8))]
    pub order: usize,
    /// Bytes of text to learn from, taken from the beginnings of all files alike.
    #[schemars(range(min = 1024, max = 64 << 20))]
    pub train_bytes: u64,
    /// Memory of the model in bytes; when it is full, new sequences are left out.
    #[schemars(range(min = 1 << 20, max = 256 << 20))]
    pub memory_bytes: u64,
}

impl Default for PerplexityFilter {
    fn default() -> Self {
        Self {
            reference_files: Vec::new(),
            max_perplexity: None,
            order: 5,
            train_bytes: 2 << 20,
            memory_bytes: 8 << 20,
        }
    }
}
