//! Filters for web pages: markup, lines without prose, the rules of C4.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Leaves out documents that are HTML (or the script of a page) rather than text. Asked before lines are
/// taken out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MarkupFilter {
    /// Switch it on.
    pub enabled: bool,
    /// Largest share of characters inside tags, scripts and styles.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub max_share: f64,
    /// Leave out whatever begins like a page (`<!doctype html`, `<html`), however much text it holds.
    pub pages: bool,
}

impl Default for MarkupFilter {
    fn default() -> Self {
        Self { enabled: false, max_share: 0.2, pages: true }
    }
}

/// Takes out lines by their form; a key that is absent or `false` takes out none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LinesFilter {
    /// Fewest characters of a line.
    pub min_chars: Option<u64>,
    /// Most characters of a line.
    pub max_chars: Option<u64>,
    /// Take out lines that hold nothing but web and e-mail addresses.
    pub urls: bool,
    /// Take out lines of a short built-in list: sharing buttons, "read more", copyright lines, in English
    /// and Finnish.
    pub boilerplate: bool,
    /// Take out lines that match one of these as a whole; `*` stands for anything, case does not matter.
    pub patterns: Vec<String>,
}

/// The rules of C4 (Raffel et al. 2020, section 2.2), but its word list (`words`) and its deduplication.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a rule of its own, as the paper lists them")]
pub struct C4Filter {
    /// Switch them on; each rule can be switched off on its own.
    pub enabled: bool,
    /// Keep only lines that end in a full stop, an exclamation or question mark, or a closing quotation
    /// mark.
    pub terminal_punctuation: bool,
    /// Fewest words of a line; `null` for any.
    pub min_words_per_line: Option<u64>,
    /// Take out lines that name JavaScript.
    pub javascript_lines: bool,
    /// Take out lines on terms of use, privacy policies and cookies, in English and Finnish.
    pub policy_lines: bool,
    /// Take out markers of citations, `[1]` and `[citation needed]`, from lines.
    pub citation_markers: bool,
    /// Leave out documents with a curly bracket: they are mostly code.
    pub curly_brackets: bool,
    /// Leave out documents that say "lorem ipsum".
    pub lorem_ipsum: bool,
    /// Fewest sentences of a document, counted in the lines that are kept; `null` for any.
    pub min_sentences: Option<u64>,
}

impl Default for C4Filter {
    fn default() -> Self {
        Self {
            enabled: false,
            terminal_punctuation: true,
            min_words_per_line: Some(5),
            javascript_lines: true,
            policy_lines: true,
            citation_markers: true,
            curly_brackets: true,
            lorem_ipsum: true,
            min_sentences: Some(3),
        }
    }
}
