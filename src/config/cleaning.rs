//! What is done to each document before it is judged.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

/// Cleaning steps; each can be switched off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, as the user writes it")]
pub struct CleaningConfig {
    /// Unicode normalisation form C.
    pub unicode_nfc: bool,
    /// Take control characters out, but tabs and line ends.
    pub control_characters: bool,
    /// One space for a run of them, at most one blank line, nothing at the ends of lines.
    pub whitespace: bool,
    /// Decode what is left of HTML: `&amp;`, `&#228;`.
    pub html_entities: bool,
}

impl Default for CleaningConfig {
    fn default() -> Self {
        Self { unicode_nfc: true, control_characters: true, whitespace: true, html_entities: true }
    }
}
