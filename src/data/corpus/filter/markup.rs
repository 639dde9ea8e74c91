//! Rejects documents that are HTML rather than text: by their beginning, and by the share of characters
//! within tags.

use crate::corpus::Rejection;
use crate::corpus::clean::Tags;
use crate::corpus::filter::page::count_chars;
use crate::corpus::filter::{Filter, Page, Reasons, above, reject, share};
use config::MarkupFilter;

pub(super) const REASONS: Reasons = &[("html_markup", "HTML or a script rather than text.")];

/// Beginnings of an HTML page, in lower case.
const BEGINNINGS: [&str; 5] = ["<!doctype html", "<html", "<?xml", "<head", "<body"];

pub(in crate::corpus) struct Markup {
    limits: MarkupFilter,
}

impl Markup {
    /// Returns the filter; `None` if it is disabled.
    pub(in crate::corpus) fn new(limits: &MarkupFilter) -> Option<Self> {
        limits.enabled.then(|| Self { limits: limits.clone() })
    }
}

impl Filter for Markup {
    fn check(&self, page: &Page) -> Option<Rejection> {
        let text = page.text.trim_start();
        let found = BEGINNINGS.into_iter().find(|beginning| {
            text.get(..beginning.len()).is_some_and(|start| start.eq_ignore_ascii_case(beginning))
        });
        if self.limits.pages
            && let Some(beginning) = found
        {
            return reject("html_markup", format!("begins with `{beginning}`"));
        }
        // Shortcut: most documents have no `<` at all.
        if !text.contains('<') {
            return None;
        }
        let within: u64 = Tags::new(text).map(|tag| count_chars(&text[tag.start..tag.end])).sum();
        above(
            "html_markup",
            share(within, count_chars(text)),
            Some(self.limits.max_share),
            "of the characters stand within tags",
        )
    }
}
