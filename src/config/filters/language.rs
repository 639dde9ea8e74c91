//! The filter by language, and the codes of languages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatlang::Lang;

/// Leaves out documents in other languages than the expected ones. Off while `expected` is empty.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LanguageFilter {
    /// Languages to keep: ISO 639-3 or 639-1 codes, such as `fin` or `fi`.
    pub expected: Vec<String>,
    /// Least confidence, from 0 to 1, that a document is in an expected language. Keep it low: on short
    /// text, right guesses are often made with little confidence.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_confidence: f64,
    /// Documents with fewer letters than this are too short to be judged, and kept.
    pub min_letters: u64,
    /// Languages to tell apart; all when empty. Fewer are told apart faster and, in short text, more surely;
    /// text in any other language is then taken for one of these.
    pub candidates: Vec<String>,
    /// Find the language of each document for the report, also when none is expected.
    pub detect: bool,
}

impl Default for LanguageFilter {
    fn default() -> Self {
        Self {
            expected: Vec::new(),
            min_confidence: 0.0,
            min_letters: 50,
            candidates: Vec::new(),
            detect: false,
        }
    }
}

/// ISO 639-1 codes of the languages that are detected, with their ISO 639-3 codes. `no` and `zh` name the
/// written form.
const TWO_LETTERS: [(&str, &str); 71] = [
    ("af", "afr"),
    ("ak", "aka"),
    ("am", "amh"),
    ("ar", "ara"),
    ("az", "aze"),
    ("be", "bel"),
    ("bg", "bul"),
    ("bn", "ben"),
    ("ca", "cat"),
    ("cs", "ces"),
    ("cy", "cym"),
    ("da", "dan"),
    ("de", "deu"),
    ("el", "ell"),
    ("en", "eng"),
    ("eo", "epo"),
    ("es", "spa"),
    ("et", "est"),
    ("fa", "pes"),
    ("fi", "fin"),
    ("fr", "fra"),
    ("gu", "guj"),
    ("he", "heb"),
    ("hi", "hin"),
    ("hr", "hrv"),
    ("hu", "hun"),
    ("hy", "hye"),
    ("id", "ind"),
    ("it", "ita"),
    ("ja", "jpn"),
    ("jv", "jav"),
    ("ka", "kat"),
    ("km", "khm"),
    ("kn", "kan"),
    ("ko", "kor"),
    ("la", "lat"),
    ("lt", "lit"),
    ("lv", "lav"),
    ("mk", "mkd"),
    ("ml", "mal"),
    ("mr", "mar"),
    ("my", "mya"),
    ("nb", "nob"),
    ("ne", "nep"),
    ("nl", "nld"),
    ("no", "nob"),
    ("or", "ori"),
    ("pa", "pan"),
    ("pl", "pol"),
    ("pt", "por"),
    ("ro", "ron"),
    ("ru", "rus"),
    ("si", "sin"),
    ("sk", "slk"),
    ("sl", "slv"),
    ("sn", "sna"),
    ("sr", "srp"),
    ("sv", "swe"),
    ("ta", "tam"),
    ("te", "tel"),
    ("th", "tha"),
    ("tk", "tuk"),
    ("tl", "tgl"),
    ("tr", "tur"),
    ("uk", "ukr"),
    ("ur", "urd"),
    ("uz", "uzb"),
    ("vi", "vie"),
    ("yi", "yid"),
    ("zh", "cmn"),
    ("zu", "zul"),
];

/// Returns the ISO 639-3 code of a language that can be detected, given that code or the ISO 639-1 code.
pub fn language_code(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let long = TWO_LETTERS.iter().find(|(short, _)| *short == name).map_or(name.as_str(), |(_, long)| long);
    Lang::from_code(long).map(|lang| lang.code())
}

/// Returns the ISO 639-3 codes and English names of all languages that can be detected.
pub fn language_codes() -> impl Iterator<Item = (&'static str, &'static str)> {
    Lang::all().iter().map(|lang| (lang.code(), lang.eng_name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_codes_of_every_language_lead_to_it() {
        assert_eq!(language_code("fi"), Some("fin"));
        assert_eq!(language_code("FIN"), Some("fin"));
        assert_eq!(language_code("xx"), None);
        assert_eq!(language_code("finnish"), None);
        for (short, long) in TWO_LETTERS {
            assert_eq!(language_code(short), Some(long));
        }
        for (code, _) in language_codes() {
            assert!(TWO_LETTERS.iter().any(|(_, long)| *long == code), "{code} has no code of two letters");
        }
    }
}
