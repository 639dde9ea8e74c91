//! Lines of a file as bytes: bounded in length, `\n` and `\r\n` and a leading byte-order mark taken off.
//!
//! It knows nothing of characters.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;

use crate::corpus::read::files::SourceFile;
use crate::corpus::read::utf8::EXCERPT_BYTES;
use crate::fs::TextFile;

pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What is read at once.
pub(super) const BUFFER_BYTES: usize = 64 << 10;

/// Reads a file line by line.
pub struct Lines {
    reader: BufReader<TextFile>,
    path: Arc<Path>,
    buffer: Vec<u8>,
    /// Number of the line that was read last, from 1.
    number: u64,
    /// Where the next line begins in the decompressed text.
    next_offset: u64,
    line_bytes_max: usize,
}

/// One line.
pub struct Line<'a> {
    /// Its number, from 1.
    pub number: u64,
    /// Where it begins in the decompressed text, without a byte-order mark.
    pub offset: u64,
    /// It without its end; of one that is too long, the beginning.
    pub bytes: &'a [u8],
    /// Its length in bytes without its end.
    pub length: u64,
    /// Whether it is longer than the limit.
    pub is_too_long: bool,
}

impl Lines {
    pub(super) fn open(file: &SourceFile, line_bytes_max: usize) -> Result<Self> {
        Ok(Self::of(file.open()?, Arc::clone(&file.path), line_bytes_max))
    }

    /// The lines of a text that errors call `path`; of one that is longer than `line_bytes_max`, only the
    /// beginning is kept.
    pub fn of(text: TextFile, path: Arc<Path>, line_bytes_max: usize) -> Self {
        let reader = BufReader::with_capacity(BUFFER_BYTES, text);
        Self { reader, path, buffer: Vec::new(), number: 0, next_offset: 0, line_bytes_max }
    }

    /// Bytes of the file, as it lies on the disk, whose lines have been read so far, about: what waits in the buffer
    /// is not among them.
    pub fn position_bytes(&self) -> u64 {
        let (position, waiting) = (self.reader.get_ref().position_bytes(), self.reader.buffer().len() as u64);
        let given = self.next_offset + waiting;
        // Compressed files are as dense in the buffer as before it.
        (u128::from(position) * u128::from(self.next_offset) / u128::from(given.max(1))) as u64
    }

    /// The number of the line that was read last, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes of memory that are held for lines.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.buffer.capacity() + self.reader.capacity()
    }

    /// The next line; `None` after the last.
    pub fn advance(&mut self) -> Result<Option<Line<'_>>> {
        self.number += 1;
        let start = self.next_offset;
        let mut count = self.read()?;
        if count == 0 {
            return Ok(None);
        }
        let is_whole = self.buffer.last() == Some(&b'\n') || count < self.read_at_most();
        let mut range = 0..self.buffer.len();
        if self.number == 1 && self.buffer.starts_with(BYTE_ORDER_MARK) {
            range.start = BYTE_ORDER_MARK.len();
        }
        let length = if is_whole {
            range.end -= line_end(&self.buffer[range.clone()]);
            range.len() as u64
        } else {
            let (skipped, end) = self.skip_rest().with_context(|| self.cannot_read())?;
            count += skipped;
            count - end - range.start as u64
        };
        self.next_offset += count;
        let is_too_long = length > self.line_bytes_max as u64;
        if is_too_long {
            range.end = range.end.min(range.start + EXCERPT_BYTES + 3);
        }
        let (number, offset) = (self.number, start + range.start as u64);
        Ok(Some(Line { number, offset, bytes: &self.buffer[range], length, is_too_long }))
    }

    /// What a line of the longest length may have, with mark and end, and one more.
    fn read_at_most(&self) -> u64 {
        (self.line_bytes_max + BYTE_ORDER_MARK.len() + 3) as u64
    }

    fn cannot_read(&self) -> String {
        format!("cannot read `{}`, line {}", self.path.display(), self.number)
    }

    /// Reads a line, or as much of it as is kept; gives the bytes read.
    fn read(&mut self) -> Result<u64> {
        self.buffer.clear();
        let limit = self.read_at_most();
        let count = (&mut self.reader)
            .take(limit)
            .read_until(b'\n', &mut self.buffer)
            .with_context(|| self.cannot_read())?;
        Ok(count as u64)
    }

    /// Reads to the end of the line without keeping it; gives the bytes read and those of the line's end
    /// among them.
    fn skip_rest(&mut self) -> std::io::Result<(u64, u64)> {
        let (mut skipped, mut last) = (0, self.buffer.last().copied().unwrap_or_default());
        loop {
            let chunk = self.reader.fill_buf()?;
            let Some(&chunk_last) = chunk.last() else {
                return Ok((skipped, u64::from(last == b'\r')));
            };
            // `contains` runs over a chunk many times faster than `position`.
            if chunk.contains(&b'\n') {
                let end = chunk.iter().position(|byte| *byte == b'\n').unwrap_or_default();
                let before = if end == 0 { last } else { chunk[end - 1] };
                self.reader.consume(end + 1);
                return Ok((skipped + end as u64 + 1, 1 + u64::from(before == b'\r')));
            }
            let count = chunk.len();
            (skipped, last) = (skipped + count as u64, chunk_last);
            self.reader.consume(count);
        }
    }
}

/// The number of newlines in `part`.
pub(super) fn newlines(part: &[u8]) -> u64 {
    part.split(|byte| *byte == b'\n').count() as u64 - 1
}

/// Bytes of the end of a line.
fn line_end(line: &[u8]) -> usize {
    match line {
        [.., b'\r', b'\n'] => 2,
        [.., b'\n' | b'\r'] => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SourceConfig;
    use crate::corpus::read::files;

    /// The lines of a file: bytes and length; what is too long in brackets.
    fn read(bytes: &[u8], line_bytes_max: usize) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, bytes).unwrap();
        let found = files::find(&[SourceConfig::of_files(vec![path.to_str().unwrap().to_string()])]).unwrap();
        let mut lines = Lines::open(&found[0], line_bytes_max).unwrap();
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
    fn line_ends_and_byte_order_mark_are_taken_off() {
        assert_eq!(
            read(b"\xef\xbb\xbfone\r\n\r\n\xef\xbb\xbftwo\n three", 100),
            ["one", "", "\u{feff}two", " three"]
        );
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
    fn what_is_kept_of_a_long_line_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, [vec![b'x'; 3 << 20], b"\nshort\n".to_vec()].concat()).unwrap();
        let found = files::find(&[SourceConfig::of_files(vec![path.to_str().unwrap().to_string()])]).unwrap();
        let mut lines = Lines::open(&found[0], 1 << 16).unwrap();
        assert_eq!(lines.advance().unwrap().unwrap().length, 3 << 20);
        assert_eq!(lines.advance().unwrap().unwrap().bytes, b"short");
        assert!(lines.buffer.capacity() <= 2 << 16, "{}", lines.buffer.capacity());
    }
}
