//! Filters of documents and lines by their contents: one table for each filter.

mod counts;
mod gopher;
mod language;
mod lists;
mod web;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

pub use counts::CharactersFilter;
pub use counts::LengthFilter;
pub use gopher::GopherFilter;
pub use gopher::RepetitionFilter;
pub use gopher::StopWords;
pub use language::LanguageFilter;
pub use language::language_code;
pub use language::language_codes;
pub use lists::PerplexityFilter;
pub use lists::WordsFilter;
pub use web::C4Filter;
pub use web::LinesFilter;
pub use web::MarkupFilter;

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
