//! Encodings of text that a configuration names, such as Windows-1252, and their conversion to UTF-8.

use std::borrow::Cow;

use encoding_rs::{Decoder, DecoderResult, Encoding};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::fs::as_utf8::Converter;

/// Bytes of output in a step of the conversion, where the decoder cannot tell how many there will be.
const LEAST_ROOM: usize = 4096;

/// A byte that is never part of UTF-8.
const INVALID: u8 = 0xff;

/// An encoding of text, by one of its names in the WHATWG's standard: `windows-1252`, `latin1`, `shift_jis`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextEncoding(&'static Encoding);

impl TextEncoding {
    /// Returns the encoding with this name, in upper or lower case; `None` if no encoding has it.
    pub fn named(name: &str) -> Option<Self> {
        Encoding::for_label_no_replacement(name.as_bytes()).map(Self)
    }

    /// Returns a converter to UTF-8. A byte-order mark of UTF-8 at the start of the text wins over the name.
    pub(super) fn converter(self) -> impl Converter {
        self.0.new_decoder()
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

impl Converter for Decoder {
    fn convert(&mut self, mut bytes: &[u8], is_last: bool, output: &mut Vec<u8>) {
        loop {
            let start = output.len();
            let room = self.max_utf8_buffer_length_without_replacement(bytes.len());
            output.resize(start + room.unwrap_or(LEAST_ROOM), 0);
            let (result, read, written) =
                self.decode_to_utf8_without_replacement(bytes, &mut output[start..], is_last);
            output.truncate(start + written);
            bytes = &bytes[read..];
            match result {
                DecoderResult::InputEmpty => return,
                DecoderResult::OutputFull => {}
                DecoderResult::Malformed(..) => output.push(INVALID),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fs::as_utf8::testing::converted;

    fn read(bytes: &[u8], name: &str) -> Vec<u8> {
        converted(bytes, TextEncoding::named(name).unwrap().converter())
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
        fn small_pieces_give_what_the_whole_gives(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
            at in 0..4_usize,
        ) {
            let name = ["windows-1252", "shift_jis", "gb18030", "iso-2022-jp"][at];
            let (text, ..) = TextEncoding::named(name).unwrap().0.decode(&bytes);
            let pieces = String::from_utf8_lossy(&read(&bytes, name)).into_owned();
            prop_assert_eq!(pieces, text);
        }
    }
}
