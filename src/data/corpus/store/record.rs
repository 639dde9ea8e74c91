//! Binary format of one document: a header of fixed size, then the text.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | length of the text, u32 |
//! | 4..8 | index of the source, u32 |
//! | 8..12 | index of the file in the part's list, u32 |
//! | 12..15 | language as ISO 639-3, zeros if it is not known |
//! | 15 | zero |
//! | 16..24 | line, u64 |
//! | 24..32 | key of the split, f64 |
//!
//! All numbers are little-endian.

use std::io::Read;

use crate::corpus::split;

const HEADER_BYTES: usize = 32;

/// A kept document, with the properties that later stages need.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredDocument {
    /// The cleaned text.
    pub text: String,
    /// Index of its source in the configuration.
    pub source: usize,
    /// Its language as an ISO 639-3 code, if languages are identified.
    pub language: Option<[u8; 3]>,
    /// Index of its file in the list of its part.
    pub(in crate::corpus) file: u32,
    /// Line at which it starts.
    pub(in crate::corpus) line: u64,
    /// Key that decides its side of the split: see [`split`].
    pub key: f64,
}

impl StoredDocument {
    pub(in crate::corpus) fn new(
        text: String,
        source: usize,
        language: Option<&str>,
        file: u32,
        line: u64,
    ) -> Self {
        let key = split::key(&text);
        Self {
            text,
            source,
            language: language.and_then(|code| code.as_bytes().try_into().ok()),
            file,
            line,
            key,
        }
    }

    /// The language's code as text.
    pub fn language(&self) -> Option<&str> {
        self.language.as_ref().and_then(|code| std::str::from_utf8(code).ok())
    }

    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend((self.text.len() as u32).to_le_bytes());
        bytes.extend((self.source as u32).to_le_bytes());
        bytes.extend(self.file.to_le_bytes());
        bytes.extend(self.language.unwrap_or_default());
        bytes.push(0);
        bytes.extend(self.line.to_le_bytes());
        bytes.extend(self.key.to_le_bytes());
        bytes.extend(self.text.as_bytes());
    }

    /// Reads the next document; a text of more than `max_bytes` bytes is an error.
    pub(super) fn decode(reader: &mut impl Read, max_bytes: usize) -> std::io::Result<Self> {
        let mut header = [0; HEADER_BYTES];
        reader.read_exact(&mut header)?;
        let length = u32_at(&header, 0) as usize;
        if length > max_bytes {
            return Err(invalid("a document is longer than its part"));
        }
        let mut text = vec![0; length];
        reader.read_exact(&mut text)?;
        let text = String::from_utf8(text).map_err(|_| invalid("a document is not UTF-8 text"))?;
        let language = [header[12], header[13], header[14]];
        let language = (language != [0; 3]).then_some(language);
        Ok(Self {
            text,
            source: u32_at(&header, 4) as usize,
            language,
            file: u32_at(&header, 8),
            line: u64_at(&header, 16),
            key: f64::from_bits(u64_at(&header, 24)),
        })
    }
}

fn u32_at(header: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

fn u64_at(header: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from(u32_at(header, at)) | u64::from(u32_at(header, at + 4)) << 32
}

fn invalid(message: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, message.to_string())
}
