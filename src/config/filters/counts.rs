//! Filters by counts: bounds on a document's length and on its kinds of characters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bounds of a document's length, after cleaning; a bound that is absent is not checked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LengthFilter {
    /// Fewest characters.
    pub min_chars: Option<u64>,
    /// Most characters.
    pub max_chars: Option<u64>,
    /// Fewest words (between white space).
    pub min_words: Option<u64>,
    /// Most words.
    pub max_words: Option<u64>,
}

/// Shares of kinds of characters among those that are not white space; a bound that is absent is not checked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CharactersFilter {
    /// Least share of letters (and the marks that belong to them), such as 0.6.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_alphabetic: Option<f64>,
    /// Largest share of digits, such as 0.2.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub max_digits: Option<f64>,
    /// Largest share of what is neither letter nor digit: punctuation, symbols, emoji; such as 0.2.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub max_symbols: Option<f64>,
    /// Largest share of upper case among letters, such as 0.4.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub max_uppercase: Option<f64>,
}
