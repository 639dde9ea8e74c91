//! Splits a file into lines of bytes, of bounded length; `\n`, `\r\n` and `\r` end a line, and a leading
//! byte-order mark is removed.
//!
//! No characters are decoded here.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use memchr::memchr2;

use crate::records::utf8::EXCERPT_BYTES;
use base::fs::TextFile;

pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Bytes that are read from a file at a time.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;

/// Reads a file line by line.
pub struct Lines {
    reader: BufReader<TextFile>,
    path: Arc<Path>,
    buffer: Vec<u8>,
    /// Number of the last line that was read, from 1.
    number: u64,
    /// Offset of the next line in the decompressed text.
    next_offset: u64,
    /// True if the last line ended in a carriage return; a newline directly after it belongs to the same line
    /// end.
    after_return: bool,
    line_bytes_max: usize,
}

/// One line.
pub struct Line<'a> {
    /// Its number, from 1.
    pub number: u64,
    /// Offset of its first byte in the decompressed text, after a byte-order mark.
    pub offset: u64,
    /// The line without its end; if it is too long, only its beginning.
    pub bytes: &'a [u8],
    /// Its length in bytes without its end.
    pub length: u64,
    /// True if it is longer than the limit.
    pub is_too_long: bool,
}

impl Lines {
    /// Creates a reader of a text that errors call `path`. Of a line longer than `line_bytes_max`, only the
    /// beginning is kept.
    pub fn of(text: TextFile, path: Arc<Path>, line_bytes_max: usize) -> Self {
        let reader = BufReader::with_capacity(BUFFER_BYTES, text);
        Self {
            reader,
            path,
            buffer: Vec::new(),
            number: 0,
            next_offset: 0,
            after_return: false,
            line_bytes_max,
        }
    }

    /// Returns about how many bytes of the file, as stored on disk, belong to the lines read so far; buffered
    /// bytes are not counted.
    pub fn position_bytes(&self) -> u64 {
        let position = self.reader.get_ref().position_bytes();
        let buffered = self.reader.buffer().len() as u64;
        let decompressed = self.next_offset + buffered;
        // Assumes the same compression ratio for the buffered bytes as for those before them.
        (u128::from(position) * u128::from(self.next_offset) / u128::from(decompressed.max(1))) as u64
    }

    /// Returns the number of the last line that was read, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the bytes of memory allocated for lines.
    #[cfg(test)]
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.buffer.capacity() + self.reader.capacity()
    }

    /// Returns the next line; `None` after the last.
    pub fn advance(&mut self) -> Result<Option<Line<'_>>> {
        self.number += 1;
        let scanned = self.scan();
        let scanned = scanned
            .with_context(|| format!("cannot read `{}`, line {}", self.path.display(), self.number))?;
        let Some((mut offset, mut length)) = scanned else { return Ok(None) };
        let mut bytes = self.buffer.as_slice();
        if self.number == 1
            && let Some(rest) = bytes.strip_prefix(BYTE_ORDER_MARK)
        {
            (bytes, offset, length) = (rest, offset + 3, length - 3);
        }
        let is_too_long = length > self.line_bytes_max as u64;
        if is_too_long {
            bytes = &bytes[..bytes.len().min(EXCERPT_BYTES + 3)];
        }
        Ok(Some(Line { number: self.number, offset, bytes, length, is_too_long }))
    }

    /// Reads a line into the buffer, as far as it is kept; returns its offset and its length without its end,
    /// or `None` at the end of the file.
    fn scan(&mut self) -> std::io::Result<Option<(u64, u64)>> {
        self.buffer.clear();
        let kept_max = (self.line_bytes_max + BYTE_ORDER_MARK.len()).max(EXCERPT_BYTES);
        let mut length = None;
        loop {
            let chunk = self.reader.fill_buf()?;
            let Some(&first) = chunk.first() else {
                return Ok(length.map(|length| (self.next_offset - length, length)));
            };
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                self.reader.consume(1);
                self.next_offset += 1;
                continue;
            }
            let end = memchr2(b'\n', b'\r', chunk);
            let part = &chunk[..end.unwrap_or(chunk.len())];
            self.buffer.extend_from_slice(&part[..part.len().min(kept_max - self.buffer.len())]);
            let read = length.unwrap_or(0) + part.len() as u64;
            let count = part.len();
            if let Some(end) = end {
                self.after_return = chunk[end] == b'\r';
                self.reader.consume(end + 1);
                let start = self.next_offset + count as u64 - read;
                self.next_offset += count as u64 + 1;
                return Ok(Some((start, read)));
            }
            self.reader.consume(count);
            self.next_offset += count as u64;
            length = Some(read);
        }
    }
}

/// Counts the newlines in `part`.
pub(crate) fn newlines(part: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', part).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::fs;

    /// Returns the lines of a file; a line that is too long is in brackets, with its length.
    fn read(bytes: &[u8], line_bytes_max: usize) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, bytes).unwrap();
        let mut lines = Lines::of(fs::open_text(&path).unwrap(), path.into(), line_bytes_max);
        let mut all = Vec::new();
        while let Some(line) = lines.advance().unwrap() {
            assert_eq!(line.number, all.len() as u64 + 1);
            assert!(bytes[line.offset as usize..].starts_with(line.bytes), "the offset is right");
            let text = String::from_utf8_lossy(line.bytes).into_owned();
            all.push(if line.is_too_long { format!("[{text} {}]", line.length) } else { text });
        }
        assert_eq!(lines.next_offset, bytes.len() as u64);
        all
    }

    #[test]
    fn line_ends_and_byte_order_mark_are_removed() {
        assert_eq!(
            read(b"\xef\xbb\xbfone\r\n\r\n\xef\xbb\xbftwo\n three", 100),
            ["one", "", "\u{feff}two", " three"]
        );
    }

    #[test]
    fn every_kind_of_line_end_ends_a_line_also_at_the_end_of_a_buffer() {
        assert_eq!(
            read(b"one\rtwo\r\n\r\rfive\n\r\nseven\r", 100),
            ["one", "two", "", "", "five", "", "seven"]
        );
        for length in BUFFER_BYTES - 2..BUFFER_BYTES + 2 {
            let long = "x".repeat(length);
            for end in ["\n", "\r\n", "\r"] {
                assert_eq!(read(format!("{long}{end}b{end}").as_bytes(), 1 << 20), [&long, "b"]);
            }
        }
    }

    #[test]
    fn a_line_over_the_limit_is_measured_and_one_at_the_limit_is_read() {
        assert_eq!(read(b"12345\n12345\r\n12345", 5), ["12345", "12345", "12345"]);
        assert_eq!(read(b"\xef\xbb\xbf12345\r\n123456\n1", 5), ["12345", "[123456 6]", "1"]);
        for extra in 1..20 {
            let long = "x".repeat(5 + extra);
            for end in ["\n", "\r\n", "", "\r"] {
                let lines = read(format!("{long}{end}").as_bytes(), 5);
                assert!(lines[0].ends_with(&format!(" {}]", long.len())), "{lines:?}");
                assert_eq!(lines.len(), 1);
            }
            assert_eq!(read(format!("{long}\r\nb").as_bytes(), 5)[1], "b");
        }
    }

    #[test]
    fn memory_for_a_long_line_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, [vec![b'x'; 3 << 20], b"\nshort\n".to_vec()].concat()).unwrap();
        let mut lines = Lines::of(fs::open_text(&path).unwrap(), path.into(), 1 << 16);
        assert_eq!(lines.advance().unwrap().unwrap().length, 3 << 20);
        assert_eq!(lines.advance().unwrap().unwrap().bytes, b"short");
        assert!(lines.buffer.capacity() <= 2 << 16, "{}", lines.buffer.capacity());
    }
}
