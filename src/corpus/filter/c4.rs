//! The rules of C4 (Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified
//! Text-to-Text Transformer", JMLR 21, section 2.2), with the thresholds of the code that made it.
//!
//! Not here: its list of bad words (`words`), its language (`language`), its deduplication. Added: the end marks
//! of all scripts (`sentence_end`), and words of other languages than English.

use crate::config::C4Filter;
use crate::corpus::Rejection;
use crate::corpus::filter::Filter;
use crate::corpus::filter::Page;
use crate::corpus::filter::Reasons;
use crate::corpus::filter::reject;
use crate::corpus::filter::sentence_end::ends_sentence;

pub(super) const REASONS: Reasons = &[
    ("c4_curly_bracket", "Holds a curly bracket, as code does (C4)."),
    ("c4_lorem_ipsum", "Says \"lorem ipsum\" (C4)."),
    ("c4_few_sentences", "Fewer sentences than `c4.min_sentences` (C4)."),
];

const CLOSING: [char; 9] = ['"', '”', '“', '»', '«', '’', '\'', '」', '』'];

/// The paper's list, and what Finnish pages say instead; in lower case.
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

/// The rules for lines.
pub(super) struct C4Lines {
    rules: C4Filter,
}

impl C4Lines {
    pub(super) fn new(rules: &C4Filter) -> Option<Self> {
        rules.enabled.then(|| Self { rules: rules.clone() })
    }

    /// Why a line goes; `lower` is the line in lower case.
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

    /// The line without markers of citations, if it has any.
    pub(super) fn without_markers(&self, line: &str) -> Option<String> {
        if !self.rules.citation_markers || !line.contains('[') {
            return None;
        }
        let (mut kept, mut rest) = (String::with_capacity(line.len()), line);
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

/// Bytes of the marker that `text` begins with: `[1]`, `[citation needed]`.
fn marker(text: &str) -> usize {
    let digits = text[1..].bytes().take(4).take_while(u8::is_ascii_digit).count();
    if (1..=3).contains(&digits) && text.as_bytes().get(digits + 1) == Some(&b']') {
        return digits + 2;
    }
    let begins =
        |marker: &&&str| text.get(..marker.len()).is_some_and(|start| start.to_lowercase() == ***marker);
    MARKERS.iter().find(begins).map_or(0, |marker| marker.len())
}

/// Ends in a terminal mark, also within closing quotation marks or brackets; an ellipsis is the sign of a
/// text cut off.
fn is_terminated(line: &str) -> bool {
    let bare = line.trim_end_matches(CLOSING);
    let is_quoted = bare.len() < line.len();
    let bare = bare.trim_end_matches(')');
    !bare.ends_with("...") && !bare.ends_with('…') && (is_quoted || bare.ends_with(ends_sentence))
}

/// Whether `text` holds `lorem ipsum`, in whatever case; a copy of a whole document in lower case would cost
/// more.
fn is_placeholder(text: &str) -> bool {
    let is_there = |at: usize| {
        text.as_bytes().get(at..at + 11).is_some_and(|bytes| bytes.eq_ignore_ascii_case(b"lorem ipsum"))
    };
    text.match_indices(['l', 'L']).any(|(at, _)| is_there(at))
}

/// The rules for documents.
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
        let (rules, text) = (&self.rules, page.text);
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

/// Sentences up to `enough`: runs of terminal marks (and closing marks) with white space or the end behind
/// them. The wide marks of scripts that put no space between sentences end one wherever they stand.
fn count_sentences(text: &str, enough: u64) -> u64 {
    let (mut sentences, mut is_marked, mut is_wide) = (0, false, false);
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
