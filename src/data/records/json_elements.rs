//! JSON documents: an array of objects, or a sequence of objects, read one at a time from a file of any
//! length.
//!
//! Only brackets and strings are examined here; an object that is not valid JSON is found when its fields are
//! read.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};

use crate::records::lines::{BUFFER_BYTES, BYTE_ORDER_MARK, newlines};
use base::error::Problem;
use base::fs::TextFile;

/// Reads a sequence of objects, with or without an array around it.
pub(crate) struct JsonElements {
    cursor: Cursor,
    element: Vec<u8>,
    pub(crate) bytes_max: usize,
    expected: Expected,
}

/// An object in a file.
pub(crate) struct Element<'a> {
    /// Its bytes; if it is too long, only its beginning.
    pub(crate) json: &'a [u8],
    /// The line on which it begins, from 1.
    pub(crate) line: u64,
    /// The column in which it begins, from 1.
    pub(crate) column: u64,
    /// Offset of its first byte in the decompressed text.
    pub(crate) offset: u64,
    /// Its length in bytes.
    pub(crate) length: u64,
    /// True if the object is complete, false if the file ends in it.
    pub(crate) is_whole: bool,
}

/// Syntax that is expected next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// The array, or the first of several objects.
    Start,
    /// After `[`: an object or `]`.
    First,
    /// After `,`: an object.
    Element,
    /// After an object of the array: `,` or `]`.
    Separator,
    /// Not in an array: an object or the end.
    Object,
    /// The end.
    End,
}

impl JsonElements {
    /// Creates a reader of a text that errors call `path`. Of an object longer than `bytes_max`, only the
    /// beginning is kept.
    pub(crate) fn new(text: TextFile, path: Arc<Path>, bytes_max: usize) -> Result<Self> {
        let reader = BufReader::with_capacity(BUFFER_BYTES, text);
        let mut cursor = Cursor { reader, path, line: 1, column: 1, offset: 0 };
        cursor.skip_byte_order_mark()?;
        Ok(Self { cursor, element: Vec::new(), bytes_max, expected: Expected::Start })
    }

    /// Returns the next object; `None` after the last.
    pub(crate) fn advance(&mut self) -> Result<Option<Element<'_>>> {
        loop {
            let next = self.cursor.peek()?;
            self.expected = match (self.expected, next) {
                (Expected::Start | Expected::Object | Expected::End, None) => return Ok(None),
                (Expected::Start, Some(b'[')) => self.cursor.step(Expected::First),
                (Expected::Start | Expected::Object, Some(b'{')) => {
                    self.expected = Expected::Object;
                    return self.object().map(Some);
                }
                (Expected::First | Expected::Element, Some(b'{')) => {
                    self.expected = Expected::Separator;
                    return self.object().map(Some);
                }
                (Expected::Separator, Some(b',')) => self.cursor.step(Expected::Element),
                (Expected::First | Expected::Separator, Some(b']')) => self.cursor.step(Expected::End),
                (expected, next) => return Err(self.cursor.unexpected(expected, next)),
            };
        }
    }

    /// Reads an object, which begins at the cursor.
    fn object(&mut self) -> Result<Element<'_>> {
        let line = self.cursor.line;
        let column = self.cursor.column;
        let offset = self.cursor.offset;
        let is_whole = self.cursor.copy_object(&mut self.element, self.bytes_max)?;
        if !is_whole {
            self.expected = Expected::End;
        }
        let length = self.cursor.offset - offset;
        Ok(Element { json: &self.element, line, column, offset, length, is_whole })
    }

    /// Returns the number of bytes of the file, as stored on disk, that have been read so far.
    pub(crate) fn position_bytes(&self) -> u64 {
        self.cursor.reader.get_ref().position_bytes()
    }
}

/// Reader of the decompressed text that keeps track of its position.
struct Cursor {
    reader: BufReader<TextFile>,
    path: Arc<Path>,
    line: u64,
    column: u64,
    offset: u64,
}

impl Cursor {
    fn fill(&mut self) -> Result<&[u8]> {
        let path = &self.path;
        let line = self.line;
        self.reader.fill_buf().with_context(|| format!("cannot read `{}`, line {line}", path.display()))
    }

    /// Skips `count` bytes without a newline among them.
    fn skip(&mut self, count: usize) {
        self.reader.consume(count);
        self.column += count as u64;
        self.offset += count as u64;
    }

    fn skip_newline(&mut self) {
        self.skip(1);
        self.line += 1;
        self.column = 1;
    }

    fn step(&mut self, expected: Expected) -> Expected {
        self.skip(1);
        expected
    }

    fn skip_byte_order_mark(&mut self) -> Result<()> {
        if self.fill()?.starts_with(BYTE_ORDER_MARK) {
            self.reader.consume(BYTE_ORDER_MARK.len());
            self.offset += BYTE_ORDER_MARK.len() as u64;
        }
        Ok(())
    }

    /// Returns the next byte that is not white space, without consuming it; `None` at the end of the file.
    fn peek(&mut self) -> Result<Option<u8>> {
        loop {
            match self.fill()?.first().copied() {
                Some(b'\n') => self.skip_newline(),
                Some(b' ' | b'\t' | b'\r') => self.skip(1),
                other => return Ok(other),
            }
        }
    }

    /// Reads from a `{` up to and including its `}`, and copies at most `bytes_max` bytes of it into
    /// `element`. Returns false if the file ends before the `}`.
    fn copy_object(&mut self, element: &mut Vec<u8>, bytes_max: usize) -> Result<bool> {
        element.clear();
        let mut scan = Scan::default();
        loop {
            let chunk = self.fill()?;
            if chunk.is_empty() {
                return Ok(false);
            }
            let end = scan.run(chunk);
            let part = &chunk[..end.unwrap_or(chunk.len())];
            element.extend_from_slice(&part[..part.len().min(bytes_max - element.len())]);
            let count = part.len();
            let lines = newlines(part);
            let after_newline = part.iter().rev().take_while(|byte| **byte != b'\n').count() as u64;
            self.skip(count);
            if lines > 0 {
                self.line += lines;
                self.column = after_newline + 1;
            }
            if end.is_some() {
                return Ok(true);
            }
        }
    }

    fn problem(&self, message: impl Into<String>) -> Problem {
        Problem::new(message).at(format!("{}:{}:{}", self.path.display(), self.line, self.column))
    }

    fn unexpected(&self, expected: Expected, next: Option<u8>) -> anyhow::Error {
        let found = match next {
            None => "the file ends".to_string(),
            Some(byte) if byte.is_ascii_graphic() => format!("here is `{}`", char::from(byte)),
            Some(byte) => format!("here is the byte {byte:#04x}"),
        };
        let wanted = match expected {
            Expected::Start => "an array of objects is",
            Expected::First => "an object or `]` is",
            Expected::Element | Expected::Object => "an object is",
            Expected::Separator => "`,` or `]` is",
            Expected::End => "the end of the file is",
        };
        self.problem(format!("{found} where {wanted} wanted")).into()
    }
}

/// State of the search for the end of an object: nesting depth, and position in a string.
#[derive(Default)]
struct Scan {
    depth: u64,
    in_string: bool,
    escaped: bool,
}

impl Scan {
    /// Scans the next part; returns the length up to and including the last bracket, if it is in this part.
    fn run(&mut self, part: &[u8]) -> Option<usize> {
        for (index, byte) in part.iter().enumerate() {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(index + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }
}
