//! Removal of documents whose text, or nearly the same text, came before.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::on_resume::OnResume;

/// Deduplication over all sources; the first of several stays. Off by default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DeduplicationConfig {
    /// Leave out documents whose text was there before; how it is spaced does not matter.
    pub exact: bool,
    /// Leave out documents that are nearly like an earlier one: the least Jaccard similarity, such as 0.8.
    #[schemars(range(min = 0.5, max = 0.99), example = 0.8)]
    pub near_threshold: Option<f64>,
    /// Words of one shingle: documents are compared by their sequences of this many words.
    #[schemars(range(min = 1, max = 64))]
    pub shingle_words: usize,
    /// Hash functions of near-duplicate search: more of them estimate the similarity better and take more
    /// time and disk.
    #[schemars(range(min = 16, max = 1024))]
    pub num_permutations: usize,
    /// Most memory of the search in bytes, without 2 bits for each document; the rest is on the disk.
    #[schemars(range(min = 1 << 20, max = 1_u64 << 40), extend("x-on-resume" = OnResume::Free))]
    pub memory_bytes: u64,
}

impl Default for DeduplicationConfig {
    fn default() -> Self {
        Self {
            exact: false,
            near_threshold: None,
            shingle_words: 5,
            num_permutations: 128,
            memory_bytes: 128 << 20,
        }
    }
}
