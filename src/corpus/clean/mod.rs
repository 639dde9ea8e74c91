//! Cleans a text: the same characters for the same content, and nothing that shows nothing.
//!
//! It judges nothing. Cleaning a clean text changes nothing, and a text that is clean is not copied.
//!
//! The order makes it so: taking out what is invisible can bring two characters together that compose,
//! decoding can bring up both, and only then is it known what is a tag or a blank.

mod controls;
mod entities;
mod tags;
mod whitespace;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use unicode_normalization::IsNormalized;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::is_nfc_quick;

use crate::config::CleaningConfig;

pub(in crate::corpus) use tags::Tags;
pub(in crate::corpus) use whitespace::shows_nothing;
pub(in crate::corpus) use whitespace::tidy;

/// The steps that are switched on.
#[derive(Debug, Clone)]
pub(in crate::corpus) struct Cleaner {
    steps: CleaningConfig,
}

/// A text on its way through the steps, and the names of those that changed it.
struct Cleaning<'a> {
    text: Cow<'a, str>,
    changed: Vec<&'static str>,
}

impl Cleaner {
    /// A cleaner of these steps.
    pub(in crate::corpus) fn new(steps: &CleaningConfig) -> Self {
        Self { steps: steps.clone() }
    }

    /// The cleaned text, and the names of the steps that changed it, each once.
    pub(in crate::corpus) fn clean<'a>(&self, text: &'a str) -> (Cow<'a, str>, Vec<&'static str>) {
        let mut cleaning = Cleaning { text: Cow::Borrowed(text), changed: Vec::new() };
        self.characters(&mut cleaning);
        if self.steps.html_entities && cleaning.step("html_entities", entities::decode) {
            self.characters(&mut cleaning);
        }
        if self.steps.html_tags && cleaning.step("html_tags", tags::remove) {
            self.characters(&mut cleaning);
        }
        if self.steps.whitespace {
            cleaning.step("whitespace", tidy);
        }
        (cleaning.text, cleaning.changed)
    }

    fn characters(&self, cleaning: &mut Cleaning) {
        if self.steps.control_characters {
            cleaning.step("control_characters", controls::remove);
        }
        if self.steps.unicode_nfc {
            cleaning.step("unicode_nfc", compose);
        }
    }
}

impl Cleaning<'_> {
    /// Whether the step changed the text.
    fn step(&mut self, name: &'static str, step: fn(&str) -> Cow<'_, str>) -> bool {
        let Cow::Owned(text) = step(&self.text) else { return false };
        self.text = Cow::Owned(text);
        if !self.changed.contains(&name) {
            self.changed.push(name);
        }
        true
    }
}

/// Unicode normalisation form C.
fn compose(text: &str) -> Cow<'_, str> {
    // Every character before U+0300, whose first byte is 0xCC, is composed and combines with nothing before
    // it.
    if text.bytes().all(|byte| byte < 0xCC) {
        return Cow::Borrowed(text);
    }
    if is_nfc_quick(text.chars()) == IsNormalized::Yes {
        return Cow::Borrowed(text);
    }
    let composed: String = text.nfc().collect();
    if composed == text { Cow::Borrowed(text) } else { Cow::Owned(composed) }
}
