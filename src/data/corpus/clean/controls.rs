//! Removes invisible characters: controls, soft hyphens, direction marks, noncharacters.
//!
//! Tabs, line ends and carriage returns are kept, since `whitespace` handles them. Private use characters,
//! variation selectors, and the tag characters of flag emoji are kept because they are visible.

use std::borrow::Cow;

/// Treatment of a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Keep,
    Remove,
    /// Replaced by a line end: vertical tab, form feed and next line separate text.
    EndLine,
}

pub(super) fn remove(text: &str) -> Cow<'_, str> {
    let mut before = None;
    let first = text.char_indices().find(|&(_, c)| action(c, before.replace(c)) != Action::Keep);
    let Some((first, _)) = first else { return Cow::Borrowed(text) };
    let mut kept = String::with_capacity(text.len());
    kept.push_str(&text[..first]);
    let mut before = text[..first].chars().next_back();
    for c in text[first..].chars() {
        let c = match action(c, before) {
            Action::Keep => c,
            Action::EndLine => '\n',
            Action::Remove => continue,
        };
        kept.push(c);
        before = Some(c);
    }
    Cow::Owned(kept)
}

/// Returns true if a character is removed at the beginning of a line.
pub(super) fn is_removed(c: char) -> bool {
    action(c, None) == Action::Remove
}

/// Returns the treatment of `c` after `before`, the last kept character.
#[inline(always)]
fn action(c: char, before: Option<char>) -> Action {
    match c {
        ' '..='~' | '\t' | '\n' | '\r' | '\u{a0}'..='\u{ac}' | '\u{ae}'..='\u{61b}' => Action::Keep,
        '\u{b}' | '\u{c}' | '\u{85}' => Action::EndLine,
        // Zero-width joiners shape Arabic, Indic scripts and emoji; after Latin letters, signs and blanks
        // they have no effect.
        '\u{200c}' | '\u{200d}' => {
            if before.is_none_or(takes_no_joiner) {
                Action::Remove
            } else {
                Action::Keep
            }
        }
        // The zero-width space is a hint for line breaking; Khmer and Thai can be read without it.
        '\0'..='\u{9f}'
        | '\u{ad}'
        | '\u{61c}'
        | '\u{200b}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{fdd0}'..='\u{fdef}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' => Action::Remove,
        _ if u32::from(c) & 0xfffe == 0xfffe => Action::Remove,
        _ => Action::Keep,
    }
}

/// Returns true for Latin letters, accents, signs, blanks, and characters that NFC turns into one of these.
fn takes_no_joiner(c: char) -> bool {
    c < '\u{370}'
        || matches!(c, '\u{37e}' | '\u{387}' | '\u{1fef}' | '\u{1ffd}' | '\u{212a}' | '\u{212b}')
        || c.is_whitespace()
}
