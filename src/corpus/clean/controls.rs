//! Takes out characters that show nothing: controls, soft hyphens, marks of direction, noncharacters.
//!
//! Tabs, line ends and carriage returns stay, for `whitespace` to settle. Private use, variation selectors,
//! and the tags that make flags of emoji stay as well: they show something.

use std::borrow::Cow;

/// What becomes of a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    Goes,
    /// Vertical tab, form feed and next line separate, so they become a line end.
    EndsLine,
}

pub(super) fn remove(text: &str) -> Cow<'_, str> {
    let mut before = None;
    let first = text.char_indices().find(|&(_, c)| fate(c, before.replace(c)) != Fate::Stays);
    let Some((first, _)) = first else { return Cow::Borrowed(text) };
    let mut kept = String::with_capacity(text.len());
    kept.push_str(&text[..first]);
    let mut before = text[..first].chars().next_back();
    for c in text[first..].chars() {
        let c = match fate(c, before) {
            Fate::Stays => c,
            Fate::EndsLine => '\n',
            Fate::Goes => continue,
        };
        kept.push(c);
        before = Some(c);
    }
    Cow::Owned(kept)
}

/// Returns true if a character is removed at the beginning of a line.
pub(super) fn goes(c: char) -> bool {
    fate(c, None) == Fate::Goes
}

/// The fate of `c` behind `before`, the last character that stays.
#[inline(always)]
fn fate(c: char, before: Option<char>) -> Fate {
    match c {
        ' '..='~' | '\t' | '\n' | '\r' | '\u{a0}'..='\u{ac}' | '\u{ae}'..='\u{61b}' => Fate::Stays,
        '\u{b}' | '\u{c}' | '\u{85}' => Fate::EndsLine,
        // Zero-width joiners shape Arabic, Indic scripts and emoji; behind Latin letters, signs and blanks
        // they do nothing.
        '\u{200c}' | '\u{200d}' => {
            if before.is_none_or(takes_no_joiner) {
                Fate::Goes
            } else {
                Fate::Stays
            }
        }
        // The zero-width space is a hint for line breaking; Khmer and Thai are read without it.
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
        | '\u{fff9}'..='\u{fffb}' => Fate::Goes,
        _ if u32::from(c) & 0xfffe == 0xfffe => Fate::Goes,
        _ => Fate::Stays,
    }
}

/// Latin, its accents, signs and blanks, and the characters that NFC turns into such.
fn takes_no_joiner(c: char) -> bool {
    c < '\u{370}'
        || matches!(c, '\u{37e}' | '\u{387}' | '\u{1fef}' | '\u{1ffd}' | '\u{212a}' | '\u{212b}')
        || c.is_whitespace()
}
