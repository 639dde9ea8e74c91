//! Judges one document: cleans the text, removes lines, applies every filter in a fixed order, and looks for
//! text of evaluation files.
//!
//! A pure function of the text: nothing here depends on other documents, threads or time.

use anyhow::{Context, Result};

use crate::corpus::clean::Cleaner;
use crate::corpus::contamination::Contamination;
use crate::corpus::filter::{Filter, Languages, LineFilters, Markup, Page};
use crate::corpus::{Judged, Rejection, contamination, filter};
use config::{ContaminationAction, DataConfig};

/// Names of the cleaning steps, with a sentence about each for the report.
const STEPS: filter::Reasons = &[
    ("control_characters", "Characters that show nothing were taken out."),
    ("unicode_nfc", "Characters were composed (Unicode NFC)."),
    ("html_entities", "Character references of HTML were decoded."),
    ("html_tags", "HTML tags were taken out."),
    ("whitespace", "White space was settled."),
    ("no_text", "Nothing was left when the document had been cleaned."),
];

/// Cleaning, filters and contamination check of documents; can be used from any number of threads.
pub struct Judge {
    cleaner: Cleaner,
    markup: Option<Markup>,
    lines: Option<LineFilters>,
    before_language: Vec<Box<dyn Filter>>,
    languages: Option<Languages>,
    after_language: Vec<Box<dyn Filter>>,
    contamination: Option<Contamination>,
    action: ContaminationAction,
}

impl Judge {
    /// Reads word lists and evaluation files and trains the model of characters; errors name the file.
    pub fn new(config: &DataConfig) -> Result<Self> {
        let filters = &config.filters;
        Ok(Self {
            cleaner: Cleaner::new(&config.cleaning),
            markup: Markup::new(&filters.markup),
            lines: LineFilters::new(filters),
            before_language: filter::before_language(filters).context("preparing `data.filters`")?,
            languages: Languages::new(&filters.language),
            after_language: filter::after_language(filters).context("preparing `data.filters.perplexity`")?,
            contamination: Contamination::new(&config.contamination)
                .context("preparing `data.contamination`")?,
            action: config.contamination.action,
        })
    }

    /// Cleans and judges one document. The first rule that rejects it is the reason.
    pub fn judge(&self, text: &str) -> Judged {
        let (cleaned, changed) = self.cleaner.clean(text);
        let mut changes: Vec<(&'static str, u64)> = changed.into_iter().map(|name| (name, 1)).collect();
        if is_blank(&cleaned) {
            return rejected(cleaned.into_owned(), because("no_text"), changes);
        }
        // Before lines are removed: the text that remains of a page without its tags looks like prose.
        if let Some(rejection) = self.markup.as_ref().and_then(|markup| markup.check(&Page::new(&cleaned))) {
            return rejected(cleaned.into_owned(), rejection, changes);
        }
        let text = match &self.lines {
            None => cleaned.into_owned(),
            Some(lines) => {
                let left = lines.apply(&cleaned);
                changes.extend(left.counts);
                if is_blank(&left.text) {
                    return rejected(cleaned.into_owned(), because("no_lines_left"), changes);
                }
                left.text.into_owned()
            }
        };
        let (rejection, language) = self.judge_page(&Page::new(&text), &mut changes);
        Judged { text, rejection, language, changes }
    }

    fn judge_page(
        &self,
        page: &Page,
        changes: &mut Vec<(&'static str, u64)>,
    ) -> (Option<Rejection>, Option<&'static str>) {
        if let Some(rejection) = first_rejection(&self.before_language, page) {
            return (Some(rejection), None);
        }
        let found = self.languages.as_ref().map(|languages| languages.check(page));
        let language = found.as_ref().and_then(|found| found.language);
        let rejection =
            found.and_then(|found| found.rejection).or_else(|| first_rejection(&self.after_language, page));
        if rejection.is_some() {
            return (rejection, language);
        }
        let Some(overlap) = self.contamination.as_ref().and_then(|contamination| contamination.check(page))
        else {
            return (None, language);
        };
        match self.action {
            ContaminationAction::Drop => {
                (Some(Rejection { reason: "contaminated", detail: overlap.detail }), language)
            }
            ContaminationAction::Report => {
                changes.push(("contaminated", overlap.count));
                (None, language)
            }
        }
    }
}

/// Returns every name that [`Judge::judge`] gives as a reason or a change, with a sentence for the report, in
/// the order in which they are applied.
pub fn reasons() -> Vec<(&'static str, &'static str)> {
    [&[STEPS], filter::REASONS.as_slice(), &[contamination::REASONS]].concat().concat()
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

fn first_rejection(filters: &[Box<dyn Filter>], page: &Page) -> Option<Rejection> {
    filters.iter().find_map(|filter| filter.check(page))
}

fn rejected(text: String, rejection: Rejection, changes: Vec<(&'static str, u64)>) -> Judged {
    Judged { text, rejection: Some(rejection), language: None, changes }
}

fn because(reason: &'static str) -> Rejection {
    Rejection { reason, detail: String::new() }
}

#[cfg(test)]
mod tests;
