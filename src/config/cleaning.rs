//! Cleaning of each document, before the filters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Cleaning steps; each can be switched off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, as the user writes it")]
pub struct CleaningConfig {
    /// Unicode normalisation form C.
    pub unicode_nfc: bool,
    /// Take out control characters and what shows nothing: soft hyphens, zero-width spaces, byte order
    /// marks, marks of direction, noncharacters. Tabs, line ends and the joiners of scripts and emoji
    /// stay.
    pub control_characters: bool,
    /// One space for a run of blanks (tabs and no-break spaces among them), none at the ends of lines, at
    /// most one blank line. Indentation goes too: switch this off for source code.
    pub whitespace: bool,
    /// Decode what is left of HTML, also when it was escaped more than once: `&amp;`, `&#228;`,
    /// `&amp;auml;`.
    pub html_entities: bool,
    /// Take HTML tags out; `<br>` and the ends of blocks become line ends, scripts and styles go with their
    /// content.
    pub html_tags: bool,
}

impl Default for CleaningConfig {
    fn default() -> Self {
        Self {
            unicode_nfc: true,
            control_characters: true,
            whitespace: true,
            html_entities: true,
            html_tags: false,
        }
    }
}
