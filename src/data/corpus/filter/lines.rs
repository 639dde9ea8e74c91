//! Filters that remove lines from a document: by their form, by their content, by the rules of C4.
//!
//! Blank lines are kept, since they separate paragraphs; the other filters judge the remaining text.

use std::borrow::Cow;

use crate::corpus::clean::tidy;
use crate::corpus::filter::Reasons;
use crate::corpus::filter::c4::C4Lines;
use crate::corpus::filter::page::count_chars;
use crate::corpus::filter::pattern::Pattern;
use config::{FiltersConfig, LinesFilter};

pub(super) const REASONS: Reasons = &[
    ("line_too_short", "Lines with fewer characters than `lines.min_chars`, taken out."),
    ("line_too_long", "Lines with more characters than `lines.max_chars`, taken out."),
    ("line_url", "Lines of nothing but addresses, taken out."),
    ("line_boilerplate", "Lines of the built-in list of boilerplate, taken out."),
    ("line_pattern", "Lines that match one of `lines.patterns`, taken out."),
    ("c4_line_punctuation", "Lines without punctuation at their end, taken out (C4)."),
    ("c4_line_words", "Lines with fewer words than `c4.min_words_per_line`, taken out (C4)."),
    ("c4_line_javascript", "Lines that name JavaScript, taken out (C4)."),
    ("c4_line_policy", "Lines on terms of use, privacy or cookies, taken out (C4)."),
    ("c4_citation_marker", "Markers of citations, taken out of lines (C4)."),
    ("no_lines_left", "Nothing was left when lines had been taken out."),
];

/// Patterns that must match a whole line, since sentences can contain these words too.
const BOILERPLATE: [&str; 40] = [
    "share",
    "share on facebook*",
    "share on twitter*",
    "share this*",
    "tweet",
    "tweet this*",
    "like this",
    "like us on facebook*",
    "follow us on*",
    "read more",
    "read more:*",
    "read more ...",
    "read more...",
    "continue reading*",
    "click here to*",
    "sign up*newsletter*",
    "subscribe to our*",
    "leave a comment",
    "leave a reply*",
    "log in to*comment*",
    "add to cart",
    "back to top",
    "skip to content",
    "loading...",
    "*all rights reserved*",
    "jaa",
    "jaa facebookissa*",
    "jaa twitterissä*",
    "jaa artikkeli*",
    "jaa:*",
    "tykkää",
    "lue myös*",
    "lue lisää",
    "lue lisää*:*",
    "lue koko*juttu*",
    "kommentoi",
    "kirjaudu sisään*",
    "tilaa uutiskirje*",
    "*kaikki oikeudet pidätetään*",
    "siirry sisältöön",
];

/// Longest line that the built-in patterns apply to: a longer one is more than a label, even if it begins
/// like one.
const LONGEST_BOILERPLATE_CHARS: u64 = 160;

pub(in crate::corpus) struct LineFilters {
    limits: LinesFilter,
    boilerplate: Vec<Pattern>,
    patterns: Vec<Pattern>,
    c4: Option<C4Lines>,
}

/// Remaining text of a document, and the removed lines.
pub(in crate::corpus) struct FilteredText<'a> {
    /// The text.
    pub(in crate::corpus) text: Cow<'a, str>,
    /// Number of lines removed (or changed) for each reason.
    pub(in crate::corpus) counts: Vec<(&'static str, u64)>,
}

impl LineFilters {
    /// Returns the filters; `None` if all are disabled.
    pub(in crate::corpus) fn new(config: &FiltersConfig) -> Option<Self> {
        let c4 = C4Lines::new(&config.c4);
        if config.lines == LinesFilter::default() && c4.is_none() {
            return None;
        }
        let built_in = if config.lines.boilerplate {
            BOILERPLATE.iter().map(|text| Pattern::new(text)).collect()
        } else {
            Vec::new()
        };
        let patterns = config.lines.patterns.iter().map(|text| Pattern::new(text)).collect();
        Some(Self { limits: config.lines.clone(), boilerplate: built_in, patterns, c4 })
    }

    /// Removes lines; if any line was removed or changed, tidies the white space too.
    pub(in crate::corpus) fn apply<'a>(&self, text: &'a str) -> FilteredText<'a> {
        let mut counts: Vec<(&'static str, u64)> = Vec::new();
        let mut kept = String::with_capacity(text.len());
        for line in text.split('\n') {
            let trimmed = line.trim();
            let (line, trimmed) = match self.c4.as_ref().and_then(|c4| c4.without_markers(trimmed)) {
                Some(without) => {
                    count(&mut counts, "c4_citation_marker");
                    (Cow::Owned(without.clone()), Cow::Owned(without))
                }
                None => (Cow::Borrowed(line), Cow::Borrowed(trimmed)),
            };
            if !trimmed.is_empty()
                && let Some(name) = self.check(&trimmed)
            {
                count(&mut counts, name);
                continue;
            }
            kept.push_str(&line);
            kept.push('\n');
        }
        if counts.is_empty() {
            return FilteredText { text: Cow::Borrowed(text), counts };
        }
        counts.sort_by_key(|(name, _)| REASONS.iter().position(|(known, _)| known == name));
        kept.pop();
        let text = match tidy(&kept) {
            Cow::Owned(tidied) => tidied,
            Cow::Borrowed(_) => kept,
        };
        FilteredText { text: Cow::Owned(text), counts }
    }

    /// Returns the reason to remove a line that is not blank.
    fn check(&self, line: &str) -> Option<&'static str> {
        let limits = &self.limits;
        if limits.min_chars.or(limits.max_chars).is_some() {
            let chars = count_chars(line);
            if limits.min_chars.is_some_and(|least| chars < least) {
                return Some("line_too_short");
            }
            if limits.max_chars.is_some_and(|most| chars > most) {
                return Some("line_too_long");
            }
        }
        if limits.urls && line.split_whitespace().all(is_address) {
            return Some("line_url");
        }
        if self.boilerplate.is_empty() && self.patterns.is_empty() && self.c4.is_none() {
            return None;
        }
        let lower = line.to_lowercase();
        let is_label =
            line.len() as u64 <= LONGEST_BOILERPLATE_CHARS || count_chars(line) <= LONGEST_BOILERPLATE_CHARS;
        if is_label && self.boilerplate.iter().any(|pattern| pattern.matches(&lower)) {
            return Some("line_boilerplate");
        }
        if self.patterns.iter().any(|pattern| pattern.matches(&lower)) {
            return Some("line_pattern");
        }
        self.c4.as_ref().and_then(|c4| c4.check(line, &lower))
    }
}

fn count(counts: &mut Vec<(&'static str, u64)>, name: &'static str) {
    match counts.iter_mut().find(|(counted, _)| *counted == name) {
        Some((_, count)) => *count += 1,
        None => counts.push((name, 1)),
    }
}

/// True for `https://...`, `www...` and `name@host.fi`, also in brackets or followed by punctuation.
fn is_address(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric());
    ["http://", "https://", "ftp://", "www."].into_iter().any(|start| begins_with(word, start))
        || word
            .split_once('@')
            .is_some_and(|(name, host)| !name.is_empty() && host.contains('.') && !host.contains('@'))
}

fn begins_with(word: &str, start: &str) -> bool {
    word.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start))
}
