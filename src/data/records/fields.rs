//! Splits CSV and TSV into fields: quotes, doubled quotes, newlines in quotes; `\n`, `\r\n` and `\r` end a
//! record.
//!
//! The `csv` crate keeps a whole record in memory, no matter how long. Here, only wanted fields are kept, up
//! to a limit. If both read a file, the results are the same (a test compares them).

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use memchr::memchr3;

use crate::records::lines::{BUFFER_BYTES, BYTE_ORDER_MARK};
use crate::records::utf8::EXCERPT_BYTES;
use base::error::Problem;
use base::fs::TextFile;

/// Limit on the length of a header.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// Limit on the number of columns.
const COLUMNS_MAX: usize = 10_000;

/// Separator and quoting of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Separated by this byte or, with `None`, by the separator that the first line shows, usually a comma; a
    /// field that contains the separator, a quote or a newline is in quotes (RFC 4180).
    Csv(Option<u8>),
    /// Separated by tabs; quotes are ordinary characters.
    Tsv,
}

/// Syntax that follows a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Another field of the record.
    Field,
    /// Another record, or the end of the file.
    Record,
    /// There was no field: the file has ended.
    File,
}

/// A field up to a limit, and its full length.
pub(crate) struct Kept {
    bytes: Vec<u8>,
    length: u64,
    bytes_max: usize,
}

impl Kept {
    /// Creates an empty field of which at most `bytes_max` bytes are kept.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), length: 0, bytes_max }
    }

    /// Clears the field.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.length = 0;
    }

    /// Returns the field; if it is too long, its beginning.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns its full length in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// True if the field is longer than the limit.
    pub(crate) fn is_too_long(&self) -> bool {
        self.length > self.bytes_max as u64
    }

    fn push(&mut self, part: &[u8]) {
        self.length += part.len() as u64;
        let room = self.bytes_max.max(EXCERPT_BYTES).saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&part[..part.len().min(room)]);
    }
}

/// State of the parser within a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Bare,
    Quoted,
    /// After a quote in a quoted field: the end of the field, or the first half of a doubled quote.
    Quote,
}

/// A problem with the quotes of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    Fine,
    /// A field over several lines has text after its closing quote, on this line.
    TextAfterQuote(u64),
    /// The file ends in a quoted field.
    Unclosed,
}

/// Reads a table field by field.
pub(crate) struct Fields {
    reader: BufReader<TextFile>,
    path: Arc<Path>,
    delimiter: u8,
    /// The quote character; `None` if quotes are ordinary characters.
    quote: Option<u8>,
    /// Line of the next byte, from 1.
    line: u64,
    record_line: u64,
    header_line: u64,
    starts_record: bool,
    /// True if the previous byte was a carriage return that ended a line; a newline directly after it belongs
    /// to the same line end.
    after_return: bool,
    /// Problem with the quotes of the record, if any.
    quotes: Quotes,
    /// True if the record so far is empty, without any quote or delimiter.
    record_is_blank: bool,
}

impl Fields {
    /// Creates a reader of a table that errors call `path`.
    pub(crate) fn new(text: TextFile, path: Arc<Path>, dialect: Dialect) -> Result<Self> {
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, text);
        let start = reader.fill_buf().with_context(|| format!("cannot read `{}`, line 1", path.display()))?;
        if start.starts_with(BYTE_ORDER_MARK) {
            reader.consume(BYTE_ORDER_MARK.len());
        }
        let declared = declared_separator(reader.buffer());
        if let Some((_, length)) = declared {
            reader.consume(length);
        }
        let (delimiter, quote) = match dialect {
            Dialect::Csv(Some(separator)) => (separator, Some(b'"')),
            Dialect::Csv(None) => {
                (declared.map_or_else(|| separator_of(reader.buffer()), |(byte, _)| byte), Some(b'"'))
            }
            Dialect::Tsv => (b'\t', None),
        };
        let line = if declared.is_some() { 2 } else { 1 };
        Ok(Self {
            reader,
            path,
            delimiter,
            quote,
            line,
            record_line: line,
            header_line: line,
            starts_record: true,
            after_return: false,
            quotes: Quotes::Fine,
            record_is_blank: true,
        })
    }

    /// Returns the line of the header: the first line, or the one after Excel's `sep=;`.
    pub(crate) fn header_line(&self) -> u64 {
        self.header_line
    }

    /// Returns the line on which the current record begins.
    pub(crate) fn record_line(&self) -> u64 {
        self.record_line
    }

    /// True if the last record that was read is an empty line.
    pub(crate) fn record_is_blank(&self) -> bool {
        self.record_is_blank
    }

    /// Returns the number of bytes of the file, as stored on disk, that have been read so far.
    pub(crate) fn position_bytes(&self) -> u64 {
        self.reader.get_ref().position_bytes()
    }

    /// Returns an error about the current record.
    pub(crate) fn problem(&self, message: impl Into<String>) -> Problem {
        Problem::new(message).at(format!("{}:{}", self.path.display(), self.record_line))
    }

    /// Returns the problem with the quotes of the last record, if any: a quote is never closed, or a field
    /// over several lines has text after its closing quote, which suggests that its opening quote was left
    /// open.
    pub(crate) fn open_quote(&self) -> Option<Problem> {
        match self.quotes {
            Quotes::Fine => None,
            Quotes::TextAfterQuote(line) => {
                let message =
                    format!("a quote opened in this row ends in line {line}, in the middle of a text");
                let hint = "was it left open? close it, or double a quote that belongs to the text";
                Some(self.problem(message).hint(hint))
            }
            Quotes::Unclosed => {
                let hint = "double a quote that belongs to the text";
                Some(self.problem("a quote in this row is never closed").hint(hint))
            }
        }
    }

    /// Returns the error of a row whose number of fields, `count`, differs from that of the header, `wanted`.
    pub(crate) fn wrong_count(&self, count: usize, wanted: usize) -> Option<Problem> {
        let fields = if count == 1 { "field is" } else { "fields are" };
        let message = format!("{count} {fields} here, but {wanted} named in the first line");
        let hint = "look for a quote left open, or a separator inside a text that is not quoted";
        (count != wanted).then(|| self.problem(message).hint(hint))
    }

    /// Reads the next field, into `kept` if it is given, which must be clear.
    pub(crate) fn next(&mut self, kept: Option<&mut Kept>) -> Result<End> {
        let starts_record = self.starts_record;
        if starts_record {
            self.skip_newline()?;
            self.record_line = self.line;
            self.record_is_blank = true;
            self.quotes = Quotes::Fine;
        }
        let mut ignored = Kept::new(0);
        let kept = kept.unwrap_or(&mut ignored);
        let end = self.scan(kept, starts_record)?;
        self.starts_record = end == End::Record;
        self.record_is_blank &= end != End::Field;
        Ok(end)
    }

    fn scan(&mut self, kept: &mut Kept, starts_record: bool) -> Result<End> {
        let mut state = State::Start;
        let first_line = self.line;
        loop {
            let path = &self.path;
            let line = self.line;
            let chunk = self
                .reader
                .fill_buf()
                .with_context(|| format!("cannot read `{}`, line {line}", path.display()))?;
            let separator = match (state, chunk.first()) {
                (State::Start, None) if starts_record => return Ok(End::File),
                (State::Quoted, None) => {
                    self.quotes = Quotes::Unclosed;
                    return Ok(End::Record);
                }
                (_, None) => Some(b'\n'),
                (State::Start, Some(byte)) if self.quote == Some(*byte) => {
                    self.record_is_blank = false;
                    self.reader.consume(1);
                    state = State::Quoted;
                    None
                }
                (State::Quote, Some(b'"')) => {
                    kept.push(b"\"");
                    self.after_return = false;
                    self.reader.consume(1);
                    state = State::Quoted;
                    None
                }
                (State::Quoted, Some(_)) => {
                    state = self.quoted(kept);
                    None
                }
                (State::Start | State::Quote | State::Bare, Some(byte)) => {
                    let ends = *byte == self.delimiter || matches!(byte, b'\n' | b'\r');
                    if state == State::Quote && !ends && self.line > first_line {
                        self.quotes = Quotes::TextAfterQuote(self.line);
                    }
                    state = State::Bare;
                    self.bare(kept)
                }
            };
            match separator {
                None => {}
                Some(b'\n' | b'\r') => return Ok(End::Record),
                Some(_) => return Ok(End::Field),
            }
        }
    }

    /// Skips the newline of `\r\n`.
    fn skip_newline(&mut self) -> Result<()> {
        if std::mem::take(&mut self.after_return) {
            let path = &self.path;
            let line = self.line;
            let chunk = self.reader.fill_buf();
            let chunk = chunk.with_context(|| format!("cannot read `{}`, line {line}", path.display()))?;
            let count = usize::from(chunk.first() == Some(&b'\n'));
            self.reader.consume(count);
        }
        Ok(())
    }

    /// Reads the buffered bytes up to and including a quote.
    fn quoted(&mut self, kept: &mut Kept) -> State {
        let chunk = self.reader.buffer();
        let end = chunk.iter().position(|byte| *byte == b'"');
        let part = &chunk[..end.unwrap_or(chunk.len())];
        kept.push(part);
        for byte in part {
            // `\r\n` counts once, at its first byte.
            self.line += u64::from(*byte == b'\r' || *byte == b'\n' && !self.after_return);
            self.after_return = *byte == b'\r';
        }
        let count = part.len();
        self.reader.consume(count + usize::from(end.is_some()));
        if end.is_some() { State::Quote } else { State::Quoted }
    }

    /// Reads the buffered bytes up to and including a separator or line end, and returns that byte.
    fn bare(&mut self, kept: &mut Kept) -> Option<u8> {
        let chunk = self.reader.buffer();
        let end = memchr3(self.delimiter, b'\n', b'\r', chunk);
        let part = &chunk[..end.unwrap_or(chunk.len())];
        kept.push(part);
        self.record_is_blank &= part.is_empty();
        let count = part.len();
        let separator = end.map(|end| chunk[end]);
        self.reader.consume(count + usize::from(end.is_some()));
        self.line += u64::from(matches!(separator, Some(b'\n' | b'\r')));
        self.after_return = separator == Some(b'\r');
        separator
    }
}

/// Reads the names of the columns from the first row of a table, up to a limit.
pub(crate) fn header_of(fields: &mut Fields) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut bytes = 0;
    let mut kept = Kept::new(HEADER_BYTES_MAX as usize);
    loop {
        kept.clear();
        let end = fields.next(Some(&mut kept))?;
        bytes += kept.length() + 1;
        if end == End::File || end == End::Record && names.is_empty() && fields.record_is_blank() {
            return Err(fields.problem("is empty, a line with the names of the columns is wanted").into());
        }
        if bytes > HEADER_BYTES_MAX {
            return Err(fields.problem(format!("the header is longer than {HEADER_BYTES_MAX} bytes")).into());
        }
        if names.len() == COLUMNS_MAX {
            return Err(fields.problem(format!("the header names more than {COLUMNS_MAX} columns")).into());
        }
        names.push(String::from_utf8_lossy(kept.bytes()).trim().to_string());
        if end == End::Record {
            return fields.open_quote().map_or(Ok(names), |problem| Err(problem.into()));
        }
    }
}

/// Returns the separator that a first line such as `sep=;` declares, as Excel writes it, and the length of
/// that line with its end.
fn declared_separator(start: &[u8]) -> Option<(u8, usize)> {
    let is_quoted = start.first() == Some(&b'"');
    let key = &start[usize::from(is_quoted)..];
    let separator = *key.get(4).filter(|_| key[..4].eq_ignore_ascii_case(b"sep="))?;
    let used = 5 + 2 * usize::from(is_quoted);
    let rest = start.get(used..)?;
    let end = match rest {
        [b'\r', b'\n', ..] => 2,
        [b'\r' | b'\n', ..] => 1,
        _ => return None,
    };
    let is_closed = !is_quoted || start[used - 1] == b'"';
    (is_closed && separator.is_ascii() && !b"\"\r\n".contains(&separator)).then_some((separator, used + end))
}

/// Guesses the separator from the header at the beginning of `start`: a comma, or if there is none, the first
/// of semicolon, tab and bar that occurs.
fn separator_of(start: &[u8]) -> u8 {
    let mut counts = [(b',', 0), (b';', 0), (b'\t', 0), (b'|', 0)];
    let mut is_quoted = false;
    for byte in start {
        is_quoted ^= *byte == b'"';
        if !is_quoted && matches!(byte, b'\n' | b'\r') {
            break;
        }
        if let Some((_, count)) = counts.iter_mut().find(|(separator, _)| separator == byte && !is_quoted) {
            *count += 1;
        }
    }
    counts.into_iter().find(|(_, count)| *count > 0).map_or(b',', |(separator, _)| separator)
}

#[cfg(test)]
mod tests;
