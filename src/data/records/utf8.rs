//! Converts bytes to text: valid UTF-8 is unchanged; invalid bytes are replaced or refused, as the source is
//! configured.
//!
//! The callers report refusals.

use std::borrow::Cow;

/// Limit on the excerpt of something left out, in bytes.
pub(crate) const EXCERPT_BYTES: usize = 500;

/// Text, and the number of invalid byte sequences that were replaced in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Decoded<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) replaced: u32,
}

/// Decodes `bytes`. If they are not UTF-8 and `may_replace` is false, the error is the offset of the first
/// invalid byte.
pub(crate) fn decode(bytes: &[u8], may_replace: bool) -> Result<Decoded<'_>, usize> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Decoded { text: Cow::Borrowed(text), replaced: 0 }),
        Err(_) if may_replace => Ok(replace(bytes)),
        Err(e) => Err(e.valid_up_to()),
    }
}

/// Suggests to name the encoding of text that is not UTF-8 and begins with `bytes`, or to convert it. The text
/// may also have another encoding than the one that is named.
pub fn encoding_hint(bytes: &[u8]) -> String {
    let example = if is_mostly_high(bytes) { "windows-1251" } else { "windows-1252" };
    format!("name its true encoding, such as `encoding: {example}`, or {}", conversion(bytes))
}

/// Suggests a command to convert text that is not UTF-8 and begins with `bytes`: Western text has few letters
/// beyond ASCII, and Windows encodings have quotes, dashes and the euro sign where Latin-1 has control
/// characters.
pub fn conversion(bytes: &[u8]) -> &'static str {
    if is_mostly_high(bytes) {
        return "convert it with `iconv -t utf-8 -f` and the name of its encoding, such as cp1251, gb18030 or shift-jis";
    }
    if bytes.iter().any(|byte| (0x80..0xa0).contains(byte)) {
        "convert it, for example with `iconv -f cp1252 -t utf-8`"
    } else {
        "convert it, for example with `iconv -f latin1 -t utf-8`"
    }
}

/// True if more bytes are beyond ASCII than are letters of ASCII.
fn is_mostly_high(bytes: &[u8]) -> bool {
    let high = bytes.iter().filter(|byte| **byte >= 0x80).count();
    high > bytes.iter().filter(|byte| byte.is_ascii_alphabetic()).count()
}

/// Replaces each maximal invalid sequence by one U+FFFD (Unicode 16, section 3.9, "Substitution of Maximal
/// Subparts").
fn replace(bytes: &[u8]) -> Decoded<'static> {
    let mut text = String::with_capacity(bytes.len() + 16);
    let mut replaced = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
            replaced += 1;
        }
    }
    Decoded { text: Cow::Owned(text), replaced }
}

/// Returns the beginning of `bytes` as text: at most [`EXCERPT_BYTES`], ending between two characters.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(EXCERPT_BYTES + 3)]);
    let mut end = text.len().min(EXCERPT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn invalid_sequences_are_replaced_and_counted() {
        let decoded = decode(b"K\xe4lyti\xf0\x9f\x98 on", true).unwrap();
        assert_eq!((decoded.text.as_ref(), decoded.replaced), ("K\u{fffd}lyti\u{fffd} on", 2));
        assert_eq!(decode(b"K\xe4lyti", false), Err(1));
    }

    #[test]
    fn the_suggested_conversion_depends_on_the_bytes() {
        assert!(conversion(b"Caf\xe9, na\xefve").contains("-f latin1"));
        assert!(conversion(b"Caf\xe9 \x96 \x805").contains("-f cp1252"));
        // "Привет, мир" in cp1251.
        let russian = b"\xcf\xf0\xe8\xe2\xe5\xf2, \xec\xe8\xf0";
        assert!(conversion(russian).contains("cp1251"));
        assert!(
            encoding_hint(russian)
                .starts_with("name its true encoding, such as `encoding: windows-1251`, or convert")
        );
    }

    #[test]
    fn an_excerpt_ends_between_two_characters() {
        assert_eq!(excerpt("ä".repeat(300).as_bytes()), "ä".repeat(250));
        assert_eq!(excerpt(format!("a{}", "ä".repeat(300)).as_bytes()).len(), 499);
        assert_eq!(excerpt(&[0xff; 600]).len(), 498);
    }

    proptest! {
        #[test]
        fn replacing_equals_the_standard_library(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            prop_assert_eq!(decode(&bytes, true).unwrap().text, String::from_utf8_lossy(&bytes));
            prop_assert!(excerpt(&bytes.repeat(20)).len() <= EXCERPT_BYTES);
        }
    }
}
