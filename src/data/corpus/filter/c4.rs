//! The rules of C4 (Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified
//! Text-to-Text Transformer", JMLR 21, section 2.2), with the thresholds of the code that made it.
//!
//! Other filters have its list of bad words (`words`), its language (`language`) and its deduplication. Added
//! here: the end marks of all scripts (`sentence_end`), and words of other languages than English.

use crate::corpus::Rejection;
use crate::corpus::filter::sentence_end::ends_sentence;
use crate::corpus::filter::{Filter, Page, Reasons, reject};
use config::C4Filter;

pub(super) const REASONS: Reasons = &[
    ("c4_curly_bracket", "Holds a curly bracket, as code does (C4)."),
    ("c4_lorem_ipsum", "Says \"lorem ipsum\" (C4)."),
    ("c4_few_sentences", "Fewer sentences than `c4.min_sentences` (C4)."),
];

const CLOSING: [char; 9] = ['"', '”', '“', '»', '«', '’', '\'', '」', '』'];

/// Phrases of policies, in lower case: the paper's list, and the corresponding Finnish ones.
const POLICY: [&str; 12] = [
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
    "käyttöehdot",
    "tietosuojaseloste",
    "tietosuojakäytäntö",
    "evästekäytäntö",
    "käyttää evästeitä",
    "evästeiden käyt",
];

const MARKERS: [&str; 4] = ["[citation needed]", "[edit]", "[lähde?]", "[muokkaa]"];

/// Rules of C4 for lines.
pub(super) struct C4Lines {
    rules: C4Filter,
}

impl C4Lines {
    pub(super) fn new(rules: &C4Filter) -> Option<Self> {
        rules.enabled.then(|| Self { rules: rules.clone() })
    }

    /// Returns the reason to remove a line; `lower` is the line in lower case.
    pub(super) fn check(&self, line: &str, lower: &str) -> Option<&'static str> {
        let rules = &self.rules;
        if rules.terminal_punctuation && !is_terminated(line) {
            return Some("c4_line_punctuation");
        }
        let least = rules.min_words_per_line.unwrap_or(0) as usize;
        if least > 0 && line.split_whitespace().take(least).count() < least {
            return Some("c4_line_words");
        }
        if rules.javascript_lines && lower.contains("javascript") {
            return Some("c4_line_javascript");
        }
        (rules.policy_lines && POLICY.iter().any(|words| lower.contains(words))).then_some("c4_line_policy")
    }

    /// Returns the line without citation markers, if it has any.
    pub(super) fn without_markers(&self, line: &str) -> Option<String> {
        if !self.rules.citation_markers || !line.contains('[') {
            return None;
        }
        let mut kept = String::with_capacity(line.len());
        let mut rest = line;
        while let Some(at) = rest.find('[') {
            kept.push_str(&rest[..at]);
            rest = &rest[at..];
            let length = marker(rest);
            if length == 0 {
                kept.push('[');
                rest = &rest[1..];
            }
            rest = &rest[length..];
        }
        kept.push_str(rest);
        (kept.len() < line.len()).then(|| kept.trim().to_string())
    }
}

/// Returns the length of the marker at the beginning of `text`, such as `[1]` or `[citation needed]`; 0 for
/// none.
fn marker(text: &str) -> usize {
    let digits = text[1..].bytes().take(4).take_while(u8::is_ascii_digit).count();
    if (1..=3).contains(&digits) && text.as_bytes().get(digits + 1) == Some(&b']') {
        return digits + 2;
    }
    let found = MARKERS
        .iter()
        .find(|marker| text.get(..marker.len()).is_some_and(|start| start.to_lowercase() == **marker));
    found.map_or(0, |marker| marker.len())
}

/// True if a line ends in a terminal mark, also inside closing quotation marks or brackets. An ellipsis does
/// not count, since it marks a truncated text.
fn is_terminated(line: &str) -> bool {
    let bare = line.trim_end_matches(CLOSING);
    let is_quoted = bare.len() < line.len();
    let bare = bare.trim_end_matches(')');
    !bare.ends_with("...") && !bare.ends_with('…') && (is_quoted || bare.ends_with(ends_sentence))
}

/// True if `text` contains `lorem ipsum` in any case. Avoids a copy of the whole document in lower case.
fn is_placeholder(text: &str) -> bool {
    text.match_indices(['l', 'L']).any(|(at, _)| {
        text.as_bytes().get(at..at + 11).is_some_and(|bytes| bytes.eq_ignore_ascii_case(b"lorem ipsum"))
    })
}

/// Rules of C4 for documents.
pub(super) struct C4 {
    rules: C4Filter,
}

impl C4 {
    pub(super) fn new(rules: &C4Filter) -> Self {
        Self { rules: rules.clone() }
    }
}

impl Filter for C4 {
    fn check(&self, page: &Page) -> Option<Rejection> {
        let rules = &self.rules;
        let text = page.text;
        if rules.curly_brackets && text.contains('{') {
            return reject("c4_curly_bracket", "holds `{`".to_string());
        }
        if rules.lorem_ipsum && is_placeholder(text) {
            return reject("c4_lorem_ipsum", "holds `lorem ipsum`".to_string());
        }
        let least = rules.min_sentences?;
        let sentences = count_sentences(text, least);
        if sentences < least {
            return reject("c4_few_sentences", format!("{sentences} sentences, at least {least} are wanted"));
        }
        None
    }
}

/// Counts sentences, up to `enough`: sequences of terminal and closing marks with white space or the end of
/// the text after them. The non-ASCII marks of scripts without spaces between sentences end a sentence
/// anywhere.
fn count_sentences(text: &str, enough: u64) -> u64 {
    let mut sentences = 0;
    let mut is_marked = false;
    let mut is_wide = false;
    for c in text.chars() {
        if ends_sentence(c) {
            is_marked = true;
            is_wide |= !c.is_ascii();
        } else if is_marked && !CLOSING.contains(&c) && c != ')' {
            sentences += u64::from(is_wide || c.is_whitespace());
            (is_marked, is_wide) = (false, false);
            if sentences >= enough {
                return sentences;
            }
        }
    }
    sentences + u64::from(is_marked)
}
