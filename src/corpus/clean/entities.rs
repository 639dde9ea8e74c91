//! Decodes character references that are left over from HTML, also when the text was escaped several times.
//!
//! Only those that end in a semicolon: without one, `&copy=2` is part of a web address. What remains holds no
//! reference that could be decoded, so that decoding again changes nothing.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;

use super::controls;

/// `&CounterClockwiseContourIntegral;` is the longest name.
const LONGEST_NAME: usize = 31;

pub(super) fn decode(text: &str) -> Cow<'_, str> {
    let (mut decoded, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(found) = text[at..].find('&') {
        let start = at + found;
        at = start + 1;
        let Some((characters, length)) = resolve(&text[at..]) else { continue };
        decoded.push_str(&text[copied..start]);
        copied = start;
        if !completes(&decoded, &characters) {
            decoded.push_str(&characters);
            at += length;
            copied = at;
        }
    }
    if copied == 0 && decoded.is_empty() {
        return Cow::Borrowed(text);
    }
    decoded.push_str(&text[copied..]);
    if decoded == text { Cow::Borrowed(text) } else { Cow::Owned(decoded) }
}

/// What the reference stands for whose `&` is just before `rest`, and its length without that `&`. As `&amp;`
/// gives another `&`, it goes on as long as that begins a reference in turn.
fn resolve(rest: &str) -> Option<(Cow<'static, str>, usize)> {
    let (mut length, mut found) = (0, None);
    while let Some(name) = name(&rest[length..]) {
        let reference = format!("&{name}");
        let characters = htmlize::unescape(reference.as_str());
        // Of `&ampamp;` the library decodes `&amp`, which has no semicolon, and keeps the rest.
        if characters == reference || (characters.len() > 1 && characters.ends_with(';')) {
            break;
        }
        length += name.len();
        let is_ampersand = characters == "&";
        found = Some((Cow::Owned(characters.into_owned()), length));
        if !is_ampersand {
            break;
        }
    }
    found
}

/// `auml;`, `#228;`, `#xE4;` at the beginning of `rest`.
fn name(rest: &str) -> Option<&str> {
    let end = rest.bytes().take(LONGEST_NAME + 1).position(|byte| !is_name(byte))?;
    let is_number = rest.starts_with('#');
    let well_formed = end > usize::from(is_number) && (is_number || rest.as_bytes()[0].is_ascii_alphabetic());
    (well_formed && rest.as_bytes()[end] == b';').then(|| &rest[..=end])
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'#'
}

/// Whether `characters` would go on with, or end, a reference that `before` leaves open: `&#` and an encoded
/// digit. Such nesting is no accident of escaping, and decoding it would make a text that can be decoded
/// again.
fn completes(before: &str, characters: &str) -> bool {
    let bytes = before.as_bytes();
    let tail = bytes.iter().rev().take(LONGEST_NAME + 1).position(|&byte| !is_name(byte));
    let is_open = tail.is_some_and(|back| bytes[bytes.len() - 1 - back] == b'&');
    let seen: String = controls::remove(characters).nfc().collect();
    is_open && seen.bytes().all(|byte| is_name(byte) || byte == b';')
}
