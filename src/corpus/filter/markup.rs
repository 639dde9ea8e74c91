//! Documents that are HTML rather than text: by how they begin, and by how much of them stands within tags.

use crate::config::MarkupFilter;
use crate::corpus::Rejection;
use crate::corpus::clean::Tags;
use crate::corpus::filter::Filter;
use crate::corpus::filter::Page;
use crate::corpus::filter::Reasons;
use crate::corpus::filter::above;
use crate::corpus::filter::page::count_chars;
use crate::corpus::filter::reject;
use crate::corpus::filter::share;

pub(super) const REASONS: Reasons = &[("html_markup", "HTML or a script rather than text.")];

/// How a page begins, in lower case.
const BEGINNINGS: [&str; 5] = ["<!doctype html", "<html", "<?xml", "<head", "<body"];

pub(in crate::corpus) struct Markup {
    limits: MarkupFilter,
}

impl Markup {
    /// `None` when it is switched off.
    pub(in crate::corpus) fn new(limits: &MarkupFilter) -> Option<Self> {
        limits.enabled.then(|| Self { limits: limits.clone() })
    }
}

impl Filter for Markup {
    fn check(&self, page: &Page) -> Option<Rejection> {
        let text = page.text.trim_start();
        let begins = |beginning: &str| {
            text.get(..beginning.len()).is_some_and(|start| start.eq_ignore_ascii_case(beginning))
        };
        if self.limits.pages
            && let Some(beginning) = BEGINNINGS.into_iter().find(|beginning| begins(beginning))
        {
            return reject("html_markup", format!("begins with `{beginning}`"));
        }
        // Most documents have no `<` at all.
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
