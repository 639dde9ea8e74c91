//! Filters: each examines one document, and returns a reason to leave it out, or none.
//!
//! Filters do not change documents, except for `lines`, which removes lines before the other filters run.

mod c4;
mod characters;
mod folded;
mod gopher;
mod language;
mod length;
mod lines;
mod markup;
mod page;
mod pattern;
mod perplexity;
mod repetition;
mod sentence_end;
mod words;

#[cfg(test)]
mod tests;

pub(in crate::corpus) use folded::Folded;
pub(in crate::corpus) use language::Languages;
pub(in crate::corpus) use lines::LineFilters;
pub(in crate::corpus) use markup::Markup;
pub(in crate::corpus) use page::Page;

use anyhow::Result;

use crate::corpus::Rejection;
use config::FiltersConfig;

/// A rule, or a group of rules, for whole documents. The result depends on the document alone.
pub(in crate::corpus) trait Filter: Send + Sync {
    /// Returns the reason to leave the document out; `None` keeps it.
    fn check(&self, page: &Page) -> Option<Rejection>;
}

/// A filter's reasons with a sentence that explains each, for the report.
pub(in crate::corpus) type Reasons = &'static [(&'static str, &'static str)];

/// Reasons of all filters, in the order in which the filters run.
pub(in crate::corpus) const REASONS: [Reasons; 10] = [
    markup::REASONS,
    lines::REASONS,
    length::REASONS,
    characters::REASONS,
    c4::REASONS,
    gopher::REASONS,
    repetition::REASONS,
    words::REASONS,
    language::REASONS,
    perplexity::REASONS,
];

/// Returns the enabled filters for whole documents, in their fixed order: cheap ones first. Not included are
/// `markup`, which runs before lines are removed, and `language`, whose result is also reported.
pub(in crate::corpus) fn before_language(config: &FiltersConfig) -> Result<Vec<Box<dyn Filter>>> {
    let mut filters: Vec<Box<dyn Filter>> = Vec::new();
    filters.push(Box::new(length::Length::new(&config.length)));
    filters.push(Box::new(characters::Characters::new(&config.characters)));
    if config.c4.enabled {
        filters.push(Box::new(c4::C4::new(&config.c4)));
    }
    if config.gopher.enabled {
        filters.push(Box::new(gopher::Gopher::new(&config.gopher)?));
    }
    if config.repetition.enabled {
        filters.push(Box::new(repetition::Repetition::new(&config.repetition)));
    }
    if !config.words.files.is_empty() {
        filters.push(Box::new(words::Words::new(&config.words)?));
    }
    Ok(filters)
}

/// Returns the filters that run after language identification, since each is made for one language.
pub(in crate::corpus) fn after_language(config: &FiltersConfig) -> Result<Vec<Box<dyn Filter>>> {
    Ok(match perplexity::Perplexity::new(&config.perplexity)? {
        Some(filter) => vec![Box::new(filter)],
        None => Vec::new(),
    })
}

/// Returns a rejection.
#[expect(clippy::unnecessary_wraps, reason = "it is what a rule returns")]
fn reject(reason: &'static str, detail: String) -> Option<Rejection> {
    Some(Rejection { reason, detail })
}

/// Rejects a share above the limit, if there is a limit; `what` describes the share in the detail: `12.5 %
/// {what}, at most 10 %`.
fn above(reason: &'static str, share: f64, most: Option<f64>, what: &str) -> Option<Rejection> {
    let most = most.filter(|most| share > *most)?;
    reject(reason, format!("{} {what}, at most {} are allowed", percent(share), percent(most)))
}

/// Rejects a share below the limit, if there is a limit.
fn below(reason: &'static str, share: f64, least: Option<f64>, what: &str) -> Option<Rejection> {
    let least = least.filter(|least| share < *least)?;
    reject(reason, format!("{} {what}, at least {} are wanted", percent(share), percent(least)))
}

/// Formats a share as a percentage, such as `12.5 %`.
fn percent(share: f64) -> String {
    // One decimal, which is omitted if it is 0.
    format!("{} %", (share * 1000.0).round() / 10.0)
}

/// Returns `part / whole`; 0 if `whole` is 0.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
