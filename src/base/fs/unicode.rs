//! Converts UTF-16 and UTF-32 to UTF-8 while reading.
//!
//! An unpaired surrogate is written as the three bytes that it would have in UTF-8. They are not valid UTF-8,
//! so readers treat them like any other invalid bytes.

use crate::fs::as_utf8::Converter;

/// An encoding that takes more than one byte for an ASCII character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unicode {
    /// UTF-16, low byte first.
    Utf16Le,
    /// UTF-16, high byte first.
    Utf16Be,
    /// UTF-32, lowest byte first.
    Utf32Le,
    /// UTF-32, highest byte first.
    Utf32Be,
}

impl Unicode {
    /// The encoding of the byte-order mark at the start of `head`.
    pub(super) fn from_mark(head: &[u8]) -> Option<Self> {
        match head {
            [0xff, 0xfe, 0, 0, ..] => Some(Self::Utf32Le),
            [0, 0, 0xfe, 0xff, ..] => Some(Self::Utf32Be),
            [0xff, 0xfe, ..] => Some(Self::Utf16Le),
            [0xfe, 0xff, ..] => Some(Self::Utf16Be),
            _ => None,
        }
    }

    /// Returns true if `head` is text in this encoding: it has a space or a line end, and no control
    /// characters and no code points that are not characters.
    pub(super) fn fits(self, head: &[u8]) -> bool {
        let units = head.chunks_exact(self.unit_bytes()).map(|unit| self.unit(unit));
        let mut has_blank = false;
        for unit in units {
            let is_control = unit < 0x20 && ![9, 10, 13].contains(&unit) || (0x7f..0xa0).contains(&unit);
            let is_none = unit > 0x0010_ffff || matches!(unit, 0xfffe | 0xffff | 0xfdd0..=0xfdef);
            if is_control || is_none {
                return false;
            }
            has_blank |= [9, 10, 13, 32].contains(&unit);
        }
        has_blank
    }

    fn unit_bytes(self) -> usize {
        match self {
            Self::Utf16Le | Self::Utf16Be => 2,
            Self::Utf32Le | Self::Utf32Be => 4,
        }
    }

    fn unit(self, bytes: &[u8]) -> u32 {
        match self {
            Self::Utf16Le | Self::Utf32Le => bytes.iter().rev().copied().fold(0, append_byte),
            Self::Utf16Be | Self::Utf32Be => bytes.iter().copied().fold(0, append_byte),
        }
    }
}

fn append_byte(value: u32, byte: u8) -> u32 {
    value << 8 | u32::from(byte)
}

/// Converts text in UTF-16 or UTF-32, and drops its byte-order mark.
pub(super) struct UnicodeConverter {
    unicode: Unicode,
    /// First bytes of a unit whose last bytes are not read yet.
    rest: Vec<u8>,
    /// First half of a surrogate pair whose second half is not read yet.
    half: Option<u32>,
    is_first: bool,
}

impl UnicodeConverter {
    pub(super) fn new(unicode: Unicode) -> Self {
        Self { unicode, rest: Vec::new(), half: None, is_first: true }
    }

    fn push(&mut self, unit: u32, output: &mut Vec<u8>) {
        if std::mem::take(&mut self.is_first) && unit == 0xfeff {
            return;
        }
        let is_wide = self.unicode.unit_bytes() == 4;
        if let Some(half) = self.half.take() {
            if (0xdc00..0xe000).contains(&unit) {
                return push_character(0x10000 + ((half - 0xd800) << 10) + (unit - 0xdc00), output);
            }
            push_character(half, output);
        }
        if (0xd800..0xdc00).contains(&unit) && !is_wide {
            self.half = Some(unit);
        } else {
            push_character(unit, output);
        }
    }
}

impl Converter for UnicodeConverter {
    fn convert(&mut self, bytes: &[u8], is_last: bool, output: &mut Vec<u8>) {
        self.rest.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.rest);
        let units = bytes.chunks_exact(self.unicode.unit_bytes());
        self.rest = units.remainder().to_vec();
        for unit in units {
            self.push(self.unicode.unit(unit), output);
        }
        if is_last {
            if let Some(half) = self.half.take() {
                push_character(half, output);
            }
            if !std::mem::take(&mut self.rest).is_empty() {
                output.push(0xff);
            }
        }
    }
}

/// Appends a code point as UTF-8, or as invalid bytes if no character has it.
fn push_character(value: u32, output: &mut Vec<u8>) {
    match char::from_u32(value) {
        Some(c) => output.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        None if value < 0x10000 => {
            let bytes = [0xe0 | value >> 12, 0x80 | value >> 6 & 0x3f, 0x80 | value & 0x3f];
            output.extend_from_slice(&bytes.map(|byte| byte as u8));
        }
        None => output.push(0xff),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fs::as_utf8::testing::converted;

    fn read(bytes: &[u8], unicode: Unicode) -> Vec<u8> {
        converted(bytes, UnicodeConverter::new(unicode))
    }

    #[test]
    fn halves_of_pairs_and_of_units_are_invalid_bytes() {
        let lone = read(b"\xff\xfea\0\x3d\xd8b\0", Unicode::Utf16Le);
        assert_eq!(lone, b"a\xed\xa0\xbdb");
        assert_eq!(read(b"a\0\x3d\xd8", Unicode::Utf16Le), b"a\xed\xa0\xbd");
        assert_eq!(read(b"a\0b", Unicode::Utf16Le), b"a\xff");
        let beyond = read(b"\0\0\xfe\xff\0\x01\xf6\0\0\x11\0\0", Unicode::Utf32Be);
        assert_eq!(beyond, [b"\xf0\x9f\x98\x80".as_slice(), b"\xff"].concat());
    }

    proptest! {
        #[test]
        fn any_text_comes_back(text in "\\PC{0,40}", is_wide: bool, is_big: bool) {
            let (unicode, bytes): (_, Vec<u8>) = match (is_wide, is_big) {
                (false, false) => (Unicode::Utf16Le, text.encode_utf16().flat_map(u16::to_le_bytes).collect()),
                (false, true) => (Unicode::Utf16Be, text.encode_utf16().flat_map(u16::to_be_bytes).collect()),
                (true, false) => (Unicode::Utf32Le, text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect()),
                (true, true) => (Unicode::Utf32Be, text.chars().flat_map(|c| u32::from(c).to_be_bytes()).collect()),
            };
            let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
            prop_assert_eq!(read(&bytes, unicode), text.as_bytes());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), kind in 0..4_usize) {
            read(&bytes, [Unicode::Utf16Le, Unicode::Utf16Be, Unicode::Utf32Le, Unicode::Utf32Be][kind]);
        }
    }
}
