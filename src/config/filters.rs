//! Filters of documents and lines by their contents: one table for each filter.

mod counts;
mod gopher;
mod language;
mod perplexity;
mod web;
mod words;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use counts::{CharactersFilter, LengthFilter};
pub use gopher::{GopherFilter, RepetitionFilter, StopWords};
pub use language::{LanguageFilter, language_code, language_codes};
pub use perplexity::PerplexityFilter;
pub use web::{C4Filter, LinesFilter, MarkupFilter};
pub use words::WordsFilter;

/// Filters in the order in which they are applied; all are off by default. The first that fails gives the
/// reason.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FiltersConfig {
    /// Documents that are HTML or scripts rather than text.
    pub markup: MarkupFilter,
    /// Lines by their form: web addresses, boilerplate, length.
    pub lines: LinesFilter,
    /// The rules of C4, for lines and documents.
    pub c4: C4Filter,
    /// Bounds of length.
    pub length: LengthFilter,
    /// Shares of letters, digits, symbols and upper case.
    pub characters: CharactersFilter,
    /// The quality rules of Gopher.
    pub gopher: GopherFilter,
    /// The repetition rules of Gopher.
    pub repetition: RepetitionFilter,
    /// Words that must not occur.
    pub words: WordsFilter,
    /// The language of a document.
    pub language: LanguageFilter,
    /// How surprising the text is to a model of characters.
    pub perplexity: PerplexityFilter,
}
