//! Bounds of a document's length.

use crate::config::LengthFilter;
use crate::corpus::Rejection;
use crate::corpus::filter::Filter;
use crate::corpus::filter::Page;
use crate::corpus::filter::Reasons;
use crate::corpus::filter::reject;

pub(super) const REASONS: Reasons = &[
    ("too_short", "Fewer characters than `length.min_chars`."),
    ("too_long", "More characters than `length.max_chars`."),
    ("too_few_words", "Fewer words than `length.min_words`."),
    ("too_many_words", "More words than `length.max_words`."),
];

pub(super) struct Length {
    limits: LengthFilter,
}

impl Length {
    pub(super) fn new(limits: &LengthFilter) -> Self {
        Self { limits: limits.clone() }
    }
}

impl Filter for Length {
    fn check(&self, page: &Page) -> Option<Rejection> {
        let limits = &self.limits;
        let chars = || {
            outside(
                ("too_short", "too_long"),
                page.counts().chars,
                limits.min_chars,
                limits.max_chars,
                "characters",
            )
        };
        let words = || {
            let count = page.words().len() as u64;
            outside(("too_few_words", "too_many_words"), count, limits.min_words, limits.max_words, "words")
        };
        let by_chars = if limits.min_chars.or(limits.max_chars).is_some() { chars() } else { None };
        by_chars.or_else(|| if limits.min_words.or(limits.max_words).is_some() { words() } else { None })
    }
}

/// A rejection where `count` lies outside its bounds.
pub(super) fn outside(
    (few, many): (&'static str, &'static str),
    count: u64,
    least: Option<u64>,
    most: Option<u64>,
    what: &str,
) -> Option<Rejection> {
    match (least, most) {
        (Some(least), _) if count < least => {
            reject(few, format!("{count} {what}, at least {least} are wanted"))
        }
        (_, Some(most)) if count > most => {
            reject(many, format!("{count} {what}, at most {most} are allowed"))
        }
        _ => None,
    }
}
