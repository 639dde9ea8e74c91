//! Bounds of a document's length.

use crate::corpus::Rejection;
use crate::corpus::filter::{Filter, Page, Reasons, reject};
use config::LengthFilter;

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
        if limits.min_chars.or(limits.max_chars).is_some() {
            let count = page.counts().chars;
            let by_chars =
                outside("too_short", "too_long", count, limits.min_chars, limits.max_chars, "characters");
            if by_chars.is_some() {
                return by_chars;
            }
        }
        if limits.min_words.or(limits.max_words).is_some() {
            let count = page.words().len() as u64;
            return outside(
                "too_few_words",
                "too_many_words",
                count,
                limits.min_words,
                limits.max_words,
                "words",
            );
        }
        None
    }
}

/// Rejects a count outside its bounds, with the reason `few` or `many`.
pub(super) fn outside(
    few: &'static str,
    many: &'static str,
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
