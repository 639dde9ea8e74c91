//! Decodes character references that are left over from HTML, also when the text was escaped several times.
//!
//! Only references that end in a semicolon are decoded: without one, `&copy=2` is part of a web address. The
//! result has no reference that could be decoded, so that decoding again changes nothing.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;

use super::controls;

/// Length of the longest name, `&CounterClockwiseContourIntegral;`, without its `&` and `;`.
const LONGEST_NAME: usize = 31;

pub(super) fn decode(text: &str) -> Cow<'_, str> {
    let mut decoded = String::new();
    let mut copied = 0;
    let mut at = 0;
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

/// Decodes the reference whose `&` is just before `rest`; returns its characters and its length without that
/// `&`. Since `&amp;` gives another `&`, decoding continues as long as that `&` begins another reference.
fn resolve(rest: &str) -> Option<(Cow<'static, str>, usize)> {
    let mut length = 0;
    let mut found = None;
    while let Some(name) = name(&rest[length..]) {
        let reference = format!("&{name}");
        let characters = htmlize::unescape(reference.as_str());
        // For `&ampamp;`, the library decodes `&amp`, which has no semicolon, and keeps the rest.
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

/// Returns the name at the beginning of `rest`, with its semicolon: `auml;`, `#228;`, `#xE4;`.
fn name(rest: &str) -> Option<&str> {
    let end = rest.bytes().take(LONGEST_NAME + 1).position(|byte| !is_name(byte))?;
    let is_number = rest.starts_with('#');
    let well_formed = end > usize::from(is_number) && (is_number || rest.as_bytes()[0].is_ascii_alphabetic());
    (well_formed && rest.as_bytes()[end] == b';').then(|| &rest[..=end])
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'#'
}

/// True if `characters` would continue or end an unfinished reference at the end of `before`, such as `&#`
/// and an encoded digit. Such nesting does not come from escaping twice, and decoding it would produce text
/// that can be decoded again.
fn completes(before: &str, characters: &str) -> bool {
    let bytes = before.as_bytes();
    let tail = bytes.iter().rev().take(LONGEST_NAME + 1).position(|&byte| !is_name(byte));
    let is_open = tail.is_some_and(|back| bytes[bytes.len() - 1 - back] == b'&');
    let visible: String = controls::remove(characters).nfc().collect();
    is_open && visible.bytes().all(|byte| is_name(byte) || byte == b';')
}
