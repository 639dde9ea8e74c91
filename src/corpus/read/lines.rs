//! Lines of a file as text: bounded in length, valid UTF-8, `\n` and `\r\n` and a leading byte-order mark taken off.
//!
//! It never repairs: an invalid byte is an error that names its place.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;

use crate::corpus::Location;
use crate::error::Problem;
use crate::fs;
use crate::fs::TextFile;

/// The longest line that is read, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 64 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a file line by line.
pub(super) struct Lines {
    reader: BufReader<TextFile>,
    path: Arc<Path>,
    buffer: Vec<u8>,
    /// Number of the line in `buffer`, from 1.
    number: u64,
    /// Offset of the line in `buffer` in the decompressed text.
    offset: u64,
    line_bytes_max: usize,
}

impl Lines {
    pub(super) fn open(path: &Arc<Path>) -> Result<Self> {
        let reader = BufReader::with_capacity(64 << 10, fs::open_text(path)?);
        Ok(Self { reader, path: Arc::clone(path), buffer: Vec::new(), number: 0, offset: 0, line_bytes_max: LINE_BYTES_MAX })
    }

    /// Where the line that was read last stands.
    pub(super) fn location(&self) -> Location {
        Location { path: Arc::clone(&self.path), line: self.number }
    }

    pub(super) fn position_bytes(&self) -> u64 {
        self.reader.get_ref().position_bytes()
    }

    /// The next line without its end; `None` after the last.
    pub(super) fn advance(&mut self) -> Result<Option<&str>> {
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        self.number += 1;
        let limit = self.line_bytes_max as u64 + 1;
        let count = (&mut self.reader)
            .take(limit)
            .read_until(b'\n', &mut self.buffer)
            .with_context(|| format!("cannot read `{}`, line {}", self.path.display(), self.number))?;
        if count == 0 {
            return Ok(None);
        }
        if count as u64 == limit && self.buffer.last() != Some(&b'\n') {
            return Err(Problem::new(format!("the line is longer than {} bytes", self.line_bytes_max))
                .at(self.location())
                .hint("break it up, or give a document a line of its own")
                .into());
        }
        let mut line = self.buffer.as_slice();
        if self.number == 1 {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        line = line.strip_suffix(b"\n").unwrap_or(line);
        line = line.strip_suffix(b"\r").unwrap_or(line);
        match std::str::from_utf8(line) {
            Ok(text) => Ok(Some(text)),
            Err(e) => {
                // The line may have lost a byte-order mark at its start: count from where it lies in the buffer.
                let start = line.as_ptr() as usize - self.buffer.as_ptr() as usize;
                let offset = self.offset + (start + e.valid_up_to()) as u64;
                Err(Problem::new(format!("is not UTF-8 text (byte {offset} of the file)"))
                    .at(self.location())
                    .hint("convert it, for example with `iconv -f latin1 -t utf-8`")
                    .into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], line_bytes_max: usize) -> Result<Vec<String>> {
        let folder = tempfile::tempdir()?;
        let path: Arc<Path> = folder.path().join("a.txt").into();
        std::fs::write(&path, bytes)?;
        let mut lines = Lines::open(&path)?;
        lines.line_bytes_max = line_bytes_max;
        let mut all = Vec::new();
        while let Some(line) = lines.advance()? {
            all.push(line.to_string());
        }
        Ok(all)
    }

    #[test]
    fn line_ends_and_byte_order_mark_are_taken_off() {
        assert_eq!(read(b"\xef\xbb\xbfone\r\n\r\n\xef\xbb\xbftwo\n three", 100).unwrap(), ["one", "", "\u{feff}two", " three"]);
    }

    #[test]
    fn an_invalid_byte_is_named_by_line_and_offset() {
        let message = read(b"\xef\xbb\xbfone\nt\xe4h\n", 100).unwrap_err().to_string();
        assert!(message.contains("a.txt:2: is not UTF-8 text (byte 8 of the file)"), "{message}");
    }

    #[test]
    fn a_line_over_the_limit_is_an_error_and_one_at_the_limit_is_not() {
        assert_eq!(read(b"12345\n12345", 5).unwrap(), ["12345", "12345"]);
        let message = read(b"one\n123456\n", 5).unwrap_err().to_string();
        assert!(message.contains("a.txt:2: the line is longer than 5 bytes"), "{message}");
    }
}
