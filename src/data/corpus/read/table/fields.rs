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

use crate::corpus::read::lines::{BUFFER_BYTES, BYTE_ORDER_MARK};
use crate::corpus::read::reading::Dialect;
use crate::corpus::read::utf8::EXCERPT_BYTES;
use base::error::Problem;
use base::fs::TextFile;

/// Syntax that follows a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Another field of the record.
    Field,
    /// Another record, or the end of the file.
    Record,
    /// There was no field: the file has ended.
    File,
}

/// A field up to a limit, and its full length.
pub struct Kept {
    bytes: Vec<u8>,
    length: u64,
    bytes_max: usize,
}

impl Kept {
    /// Creates an empty field of which at most `bytes_max` bytes are kept.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), length: 0, bytes_max }
    }

    /// Clears the field.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.length = 0;
    }

    /// Returns the field; if it is too long, its beginning.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns its full length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// True if the field is longer than the limit.
    pub fn is_too_long(&self) -> bool {
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
pub struct Fields {
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
    pub fn of(text: TextFile, path: Arc<Path>, dialect: Dialect) -> Result<Self> {
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
    pub fn header_line(&self) -> u64 {
        self.header_line
    }

    /// Returns the line on which the current record begins.
    pub fn record_line(&self) -> u64 {
        self.record_line
    }

    /// True if the last record that was read is an empty line.
    pub fn record_is_blank(&self) -> bool {
        self.record_is_blank
    }

    /// Returns the number of bytes of the file, as stored on disk, that have been read so far.
    pub fn position_bytes(&self) -> u64 {
        self.reader.get_ref().position_bytes()
    }

    /// Returns an error about the current record.
    pub fn problem(&self, message: impl Into<String>) -> Problem {
        Problem::new(message).at(format!("{}:{}", self.path.display(), self.record_line))
    }

    /// Returns the problem with the quotes of the last record, if any: a quote is never closed, or a field
    /// over several lines has text after its closing quote, which suggests that its opening quote was left
    /// open.
    pub fn open_quote(&self) -> Option<Problem> {
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
    pub fn wrong_count(&self, count: usize, wanted: usize) -> Option<Problem> {
        let fields = if count == 1 { "field is" } else { "fields are" };
        let message = format!("{count} {fields} here, but {wanted} named in the first line");
        let hint = "look for a quote left open, or a separator inside a text that is not quoted";
        (count != wanted).then(|| self.problem(message).hint(hint))
    }

    /// Reads the next field, into `kept` if it is given, which must be clear.
    pub fn next(&mut self, kept: Option<&mut Kept>) -> Result<End> {
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use base::fs;

    fn records(text: &str, dialect: Dialect) -> Result<Vec<Vec<Vec<u8>>>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, text).unwrap();
        let mut fields = Fields::of(fs::open_text(&path).unwrap(), path.into(), dialect)?;
        let mut records = Vec::new();
        let mut record = Vec::new();
        let mut kept = Kept::new(1000);
        loop {
            kept.clear();
            let end = fields.next(Some(&mut kept))?;
            if end == End::File {
                return Ok(records);
            }
            record.push(kept.bytes().to_vec());
            if end == End::Record {
                if let Some(problem) = fields.open_quote() {
                    return Err(problem.into());
                }
                let record = std::mem::take(&mut record);
                if record.len() > 1 || !fields.record_is_blank() {
                    records.push(record);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn fields_equal_those_of_the_csv_crate(text in "(\r\n|[,\t\"a\n\r ä]){0,40}", is_csv: bool) {
            let (dialect, delimiter) = if is_csv { (Dialect::Csv(Some(b',')), b',') } else { (Dialect::Tsv, b'\t') };
            let mut reader = csv::ReaderBuilder::new()
                .has_headers(false).flexible(true).delimiter(delimiter).quoting(is_csv).from_reader(text.as_bytes());
            let expected: Vec<Vec<Vec<u8>>> =
                reader.byte_records().map(|record| record.unwrap().iter().map(<[u8]>::to_vec).collect()).collect();
            // The crate accepts an unclosed quote at the end of the file.
            if let Ok(found) = records(&text, dialect) {
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn another_separator_leaves_commas_alone() {
        let found = records("a,b;\"c;d\"\n", Dialect::Csv(Some(b';'))).unwrap();
        assert_eq!(found, [vec![b"a,b".to_vec(), b"c;d".to_vec()]]);
    }

    #[test]
    fn the_separator_is_declared_or_guessed_from_the_first_line() {
        let expected = [row(["text", "label"]), row(["a, b", "c"])];
        for text in [
            "text;label\na, b;c\n",
            "text\tlabel\na, b\tc\n",
            "text|label\ra, b|c\r",
            "sep=;\ntext;label\na, b;c\n",
            "\"sep=,\"\r\ntext,label\r\n\"a, b\",c\r\n",
            "\"text\";\"label\"\n\"a, b\";c\n",
        ] {
            assert_eq!(records(text, Dialect::Csv(None)).unwrap(), expected, "{text}");
        }
        assert_eq!(records("\"a;b\",c\n", Dialect::Csv(None)).unwrap()[0], row(["a;b", "c"]));
    }

    fn row(fields: [&str; 2]) -> Vec<Vec<u8>> {
        fields.map(|field| field.as_bytes().to_vec()).to_vec()
    }

    #[test]
    fn an_open_quote_is_reported_if_text_follows_the_next_quote_on_another_line() {
        let text = "id,text\n1,\"left open\n2,two\n3,\"three\n4,four\n";
        let message = records(text, Dialect::Csv(None)).unwrap_err().to_string();
        assert!(message.contains("a.csv:2: a quote opened in this row ends in line 4,"), "{message}");
        assert_eq!(records("1,\"a\nb\"\n2,\"c\"d\n", Dialect::Csv(None)).unwrap().len(), 2);
    }

    #[test]
    fn a_return_in_quotes_belongs_to_the_field() {
        let found = records("\"a\r\",\"b\r\"\r\n\"\"\r\n\r\nc\r\n", Dialect::Csv(None)).unwrap();
        assert_eq!(found, [vec![b"a\r".to_vec(), b"b\r".to_vec()], vec![Vec::new()], vec![b"c".to_vec()]]);
    }
}
