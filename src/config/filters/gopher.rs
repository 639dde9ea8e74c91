//! The filter rules of MassiveText, the corpus of Gopher (Rae et al. 2021, arXiv 2112.11446, appendix A.1.1,
//! table A1).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A built-in list of stop words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StopWords {
    /// The eight words of the paper.
    English,
    /// The most frequent function words of Finnish.
    Finnish,
    /// The most frequent function words of Swedish.
    Swedish,
    /// The most frequent function words of German.
    German,
}

/// The quality rules; `null` switches a rule off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GopherFilter {
    /// Switch them on.
    pub enabled: bool,
    /// Fewest words (between white space) of a document.
    pub min_words: Option<u64>,
    /// Most words of a document.
    pub max_words: Option<u64>,
    /// Least mean length of a word in characters.
    #[schemars(range(min = 0.0))]
    pub min_mean_word_chars: Option<f64>,
    /// Largest mean length of a word in characters.
    #[schemars(range(min = 0.0))]
    pub max_mean_word_chars: Option<f64>,
    /// Most `#` for each word, and most ellipses for each word.
    #[schemars(range(min = 0.0))]
    pub max_symbols_per_word: Option<f64>,
    /// Largest share of lines that begin with a bullet.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub max_bullet_lines: Option<f64>,
    /// Largest share of lines that end in an ellipsis.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub max_ellipsis_lines: Option<f64>,
    /// Least share of words with a letter in them.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_alphabetic_words: Option<f64>,
    /// Fewest different stop words of the lists below.
    pub min_stop_words: Option<u64>,
    /// Built-in lists of stop words; a word of any of them counts.
    pub stop_words: Vec<StopWords>,
    /// Files with more stop words, one a line.
    #[schemars(inner(length(min = 1)), extend("x-path" = true))]
    pub stop_word_files: Vec<String>,
}

impl Default for GopherFilter {
    fn default() -> Self {
        Self {
            enabled: false,
            min_words: Some(50),
            max_words: Some(100_000),
            min_mean_word_chars: Some(3.0),
            max_mean_word_chars: Some(10.0),
            max_symbols_per_word: Some(0.1),
            max_bullet_lines: Some(0.9),
            max_ellipsis_lines: Some(0.3),
            min_alphabetic_words: Some(0.8),
            min_stop_words: Some(2),
            stop_words: vec![StopWords::English, StopWords::Finnish, StopWords::Swedish, StopWords::German],
            stop_word_files: Vec::new(),
        }
    }
}

/// The repetition rules, as shares of the document; `null` switches a rule off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RepetitionFilter {
    /// Switch them on.
    pub enabled: bool,
    /// Largest share of lines that were there before.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub max_duplicate_lines: Option<f64>,
    /// Largest share of paragraphs (between blank lines) that were there before.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub max_duplicate_paragraphs: Option<f64>,
    /// Largest share of characters in lines that were there before.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub max_duplicate_line_chars: Option<f64>,
    /// Largest share of characters in paragraphs that were there before.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub max_duplicate_paragraph_chars: Option<f64>,
    /// Documents with fewer words are asked for lines and paragraphs only: in a headline, any two words are
    /// a large share. The paper's other rules leave out what has fewer than 50.
    pub min_words: u64,
    /// Largest shares of characters in the most frequent sequence of 2, 3, 4, ... words.
    #[schemars(length(max = 16), inner(range(min = 0.0, max = 1.0)))]
    pub max_top_ngram_chars: Vec<f64>,
    /// Largest shares of characters in sequences of 5, 6, 7, ... words that were there before.
    #[schemars(length(max = 16), inner(range(min = 0.0, max = 1.0)))]
    pub max_duplicate_ngram_chars: Vec<f64>,
}

impl Default for RepetitionFilter {
    fn default() -> Self {
        Self {
            enabled: false,
            max_duplicate_lines: Some(0.3),
            max_duplicate_paragraphs: Some(0.3),
            max_duplicate_line_chars: Some(0.2),
            max_duplicate_paragraph_chars: Some(0.2),
            min_words: 50,
            max_top_ngram_chars: vec![0.2, 0.18, 0.16],
            max_duplicate_ngram_chars: vec![0.15, 0.14, 0.13, 0.12, 0.11, 0.1],
        }
    }
}
