//! Converts text in an older encoding, such as Windows-1252, to UTF-8 while reading.
//!
//! Bytes that the encoding does not have are written as a byte that is not UTF-8 either, so readers treat
//! them like any other invalid bytes.

use std::borrow::Cow;
use std::io::Read;

use encoding_rs::{Decoder, DecoderResult, Encoding};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Number of bytes read from the source at once.
const BLOCK_BYTES: usize = 32 << 10;

/// A byte that is never part of UTF-8.
const INVALID: u8 = 0xff;

/// An encoding of text, by one of its names in the WHATWG's standard: `windows-1252`, `latin1`, `shift_jis`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextEncoding(&'static Encoding);

impl TextEncoding {
    /// Returns the encoding with this name, in upper or lower case; `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        // The standard has no `cp1252` for some code pages that `iconv` and Python call so.
        let page = name.to_ascii_lowercase();
        let label = match page.strip_prefix("cp").or_else(|| page.strip_prefix("windows")) {
            Some(number) if number.starts_with("125") => format!("windows-{number}"),
            _ => page,
        };
        Encoding::for_label_no_replacement(label.as_bytes()).map(Self)
    }

    /// Returns the name in the standard, in lower case.
    pub fn name(self) -> String {
        self.0.name().to_ascii_lowercase()
    }
}

impl std::str::FromStr for TextEncoding {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::named(name).ok_or_else(|| {
            "take a name of the WHATWG's encoding standard: `windows-1252`, `iso-8859-15`, `koi8-r`, `gb18030`, \
             `shift_jis`, `euc-kr` and so on"
                .to_string()
        })
    }
}

impl Serialize for TextEncoding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

impl<'de> Deserialize<'de> for TextEncoding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl JsonSchema for TextEncoding {
    fn schema_name() -> Cow<'static, str> {
        "TextEncoding".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "examples": ["windows-1252"]})
    }
}

/// Reader that converts text to UTF-8.
pub(super) struct Decoding<R> {
    source: R,
    decoder: Decoder,
    output: Vec<u8>,
    used: usize,
    is_over: bool,
}

impl<R: Read> Decoding<R> {
    pub(super) fn new(source: R, TextEncoding(encoding): TextEncoding) -> Self {
        // A byte-order mark of UTF-8 says more than the name.
        let decoder = encoding.new_decoder();
        Self { source, decoder, output: Vec::new(), used: 0, is_over: false }
    }

    /// Fills the output buffer, which stays empty only at the end of the source.
    fn fill(&mut self) -> std::io::Result<()> {
        self.output.clear();
        self.used = 0;
        let mut block = vec![0; BLOCK_BYTES];
        while self.output.is_empty() && !self.is_over {
            let count = self.source.read(&mut block)?;
            self.is_over = count == 0;
            self.decode(&block[..count]);
        }
        Ok(())
    }

    /// Appends the characters of `bytes` to the output.
    fn decode(&mut self, mut bytes: &[u8]) {
        loop {
            let start = self.output.len();
            let room = self.decoder.max_utf8_buffer_length_without_replacement(bytes.len());
            self.output.resize(start + room.unwrap_or(4 * BLOCK_BYTES), 0);
            let (result, read, written) = self.decoder.decode_to_utf8_without_replacement(
                bytes,
                &mut self.output[start..],
                self.is_over,
            );
            self.output.truncate(start + written);
            bytes = &bytes[read..];
            match result {
                DecoderResult::InputEmpty => return,
                DecoderResult::OutputFull => {}
                DecoderResult::Malformed(..) => self.output.push(INVALID),
            }
        }
    }
}

impl<R: Read> Read for Decoding<R> {
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

    fn read(bytes: &[u8], name: &str) -> Vec<u8> {
        let mut text = Vec::new();
        Decoding::new(Drops(bytes), TextEncoding::named(name).unwrap()).read_to_end(&mut text).unwrap();
        text
    }

    #[test]
    fn an_encoding_has_several_names() {
        for (name, standard) in [
            ("windows-1252", "windows-1252"),
            ("latin1", "windows-1252"),
            ("CP1251", "windows-1251"),
            ("ISO-8859-15", "iso-8859-15"),
            ("sjis", "shift_jis"),
            ("utf-8", "utf-8"),
        ] {
            assert_eq!(
                TextEncoding::named(name).map(TextEncoding::name).as_deref(),
                Some(standard),
                "{name}"
            );
        }
        assert_eq!(["", "latin-99", "replacement"].map(TextEncoding::named), [None; 3]);
        let back: TextEncoding = serde_json::from_str("\"cp1252\"").unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), "\"windows-1252\"");
    }

    #[test]
    fn text_comes_back_and_bytes_that_the_encoding_has_not_are_invalid() {
        assert_eq!(read(b"Caf\xe9 \x80 5", "cp1252"), "Café € 5".as_bytes());
        assert_eq!(read(b"\xcf\xf0\xe8\xe2\xe5\xf2", "cp1251"), "Привет".as_bytes());
        assert_eq!(read(b"\x93\xfa\x96{", "shift_jis"), "日本".as_bytes());
        // The first half of a character at the end, and one that the next byte does not continue.
        assert_eq!(read(b"a\x93", "shift_jis"), b"a\xff");
        assert_eq!(read(b"\x81\x20b", "gb18030"), b"\xff b");
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_give_what_the_whole_gives(bytes in proptest::collection::vec(any::<u8>(), 0..80), at in 0..4_usize) {
            let name = ["windows-1252", "shift_jis", "gb18030", "iso-2022-jp"][at];
            let (text, ..) = TextEncoding::named(name).unwrap().0.decode(&bytes);
            let pieces = String::from_utf8_lossy(&read(&bytes, name)).into_owned();
            prop_assert_eq!(pieces, text);
        }
    }
}
