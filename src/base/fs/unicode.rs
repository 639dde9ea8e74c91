//! Converts UTF-16 and UTF-32 to UTF-8 while reading.
//!
//! An unpaired surrogate is written as the three bytes that it would have in UTF-8. They are not valid UTF-8,
//! so readers treat them like any other invalid bytes.

use std::io::Read;

/// Number of bytes read from the source at once.
const BLOCK_BYTES: usize = 32 << 10;

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

/// Reader that converts text in another encoding to UTF-8 and drops its byte-order mark.
pub(super) struct AsUtf8<R> {
    source: R,
    unicode: Unicode,
    /// First bytes of a unit whose last bytes are not read yet.
    rest: Vec<u8>,
    /// First half of a surrogate pair whose second half is not read yet.
    half: Option<u32>,
    is_first: bool,
    output: Vec<u8>,
    used: usize,
}

impl<R: Read> AsUtf8<R> {
    pub(super) fn new(source: R, unicode: Unicode) -> Self {
        Self { source, unicode, rest: Vec::new(), half: None, is_first: true, output: Vec::new(), used: 0 }
    }

    /// Fills the output buffer, which stays empty only at the end of the source.
    fn fill(&mut self) -> std::io::Result<()> {
        self.output.clear();
        self.used = 0;
        let mut block = vec![0; BLOCK_BYTES];
        while self.output.is_empty() {
            let count = self.source.read(&mut block)?;
            if count == 0 {
                self.end();
                return Ok(());
            }
            self.rest.extend_from_slice(&block[..count]);
            let bytes = std::mem::take(&mut self.rest);
            let units = bytes.chunks_exact(self.unicode.unit_bytes());
            self.rest = units.remainder().to_vec();
            for unit in units {
                self.push(self.unicode.unit(unit));
            }
        }
        Ok(())
    }

    fn push(&mut self, unit: u32) {
        if std::mem::take(&mut self.is_first) && unit == 0xfeff {
            return;
        }
        let is_wide = self.unicode.unit_bytes() == 4;
        if let Some(half) = self.half.take() {
            if (0xdc00..0xe000).contains(&unit) {
                return self.character(0x10000 + ((half - 0xd800) << 10) + (unit - 0xdc00));
            }
            self.character(half);
        }
        if (0xd800..0xdc00).contains(&unit) && !is_wide {
            self.half = Some(unit);
        } else {
            self.character(unit);
        }
    }

    fn character(&mut self, value: u32) {
        match char::from_u32(value) {
            Some(c) => self.output.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            None if value < 0x10000 => {
                let bytes = [0xe0 | value >> 12, 0x80 | value >> 6 & 0x3f, 0x80 | value & 0x3f];
                self.output.extend_from_slice(&bytes.map(|byte| byte as u8));
            }
            None => self.output.push(0xff),
        }
    }

    fn end(&mut self) {
        if let Some(half) = self.half.take() {
            self.character(half);
        }
        if !std::mem::take(&mut self.rest).is_empty() {
            self.output.push(0xff);
        }
    }
}

impl<R: Read> Read for AsUtf8<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.used == self.output.len() {
            self.fill()?;
        }
        let count = buffer.len().min(self.output.len() - self.used);
        buffer[..count].copy_from_slice(&self.output[self.used..self.used + count]);
        self.used += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fs::testing::Drops;

    fn read(bytes: &[u8], unicode: Unicode) -> Vec<u8> {
        let mut text = Vec::new();
        AsUtf8::new(Drops(bytes), unicode).read_to_end(&mut text).unwrap();
        text
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
