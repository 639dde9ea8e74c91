//! Cleans a text: equal content gets equal characters, and invisible characters are removed.
//!
//! No text is left out here. Cleaning a clean text changes nothing, and a clean text is not copied.
//!
//! The order of the steps ensures this: removing invisible characters can make two characters adjacent that
//! compose; decoding can produce both kinds; and only after that are tags and blanks final.

mod controls;
mod entities;
mod tags;
mod whitespace;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use config::CleaningConfig;

pub(in crate::corpus) use tags::Tags;
pub(in crate::corpus) use whitespace::{shows_nothing, tidy};

/// Applies the enabled cleaning steps.
#[derive(Debug, Clone)]
pub(in crate::corpus) struct Cleaner {
    steps: CleaningConfig,
}

/// A text between cleaning steps, and the names of the steps that changed it.
struct Cleaning<'a> {
    text: Cow<'a, str>,
    changed: Vec<&'static str>,
}

impl Cleaner {
    /// Creates a cleaner with these steps.
    pub(in crate::corpus) fn new(steps: &CleaningConfig) -> Self {
        Self { steps: steps.clone() }
    }

    /// Returns the cleaned text, and the names of the steps that changed it, each once.
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
    /// Applies a step; returns true if it changed the text.
    fn step(&mut self, name: &'static str, step: fn(&str) -> Cow<'_, str>) -> bool {
        let Cow::Owned(text) = step(&self.text) else { return false };
        self.text = Cow::Owned(text);
        if !self.changed.contains(&name) {
            self.changed.push(name);
        }
        true
    }
}

/// Applies Unicode normalization form C.
fn compose(text: &str) -> Cow<'_, str> {
    // Characters before U+0300, whose first byte is 0xCC, are already composed and do not combine with a
    // previous character.
    if text.bytes().all(|byte| byte < 0xCC) {
        return Cow::Borrowed(text);
    }
    if is_nfc_quick(text.chars()) == IsNormalized::Yes {
        return Cow::Borrowed(text);
    }
    let composed: String = text.nfc().collect();
    if composed == text { Cow::Borrowed(text) } else { Cow::Owned(composed) }
}
