//! Cuts CSV and TSV into fields: quotes, doubled quotes, newlines in quotes, `\n` and `\r\n`.
//!
//! The `csv` crate holds a whole record in memory, however long; here a field that is not asked for is
//! never held, and of one that is no more than the limit. Where both read a file, they read the same (a test
//! compares them).

use std::io::BufRead;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;

use crate::corpus::read::files::SourceFile;
use crate::corpus::read::lines::BUFFER_BYTES;
use crate::corpus::read::lines::BYTE_ORDER_MARK;
use crate::corpus::read::lines::newlines;
use crate::corpus::read::table::Dialect;
use crate::corpus::read::utf8::EXCERPT_BYTES;
use crate::error::Problem;
use crate::fs::TextFile;

/// What follows a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Another field of the record.
    Field,
    /// Another record, or the end of the file.
    Record,
    /// There was no field: the file has ended.
    File,
}

/// A field as far as it is kept, and its true length.
pub struct Kept {
    bytes: Vec<u8>,
    length: u64,
    bytes_max: usize,
}

impl Kept {
    /// Nothing yet of a field of which `bytes_max` bytes are kept.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), length: 0, bytes_max }
    }

    /// Forgets the field.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.length = 0;
    }

    /// The field, or of one that is too long its beginning.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Whether it is longer than what is kept.
    pub fn is_too_long(&self) -> bool {
        self.length > self.bytes_max as u64
    }

    fn push(&mut self, part: &[u8]) {
        self.length += part.len() as u64;
        // One byte more than the limit is held, so that a `\r` at the end can still be taken off.
        let room = (self.bytes_max.max(EXCERPT_BYTES) + 1).saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&part[..part.len().min(room)]);
    }

    fn pop(&mut self) {
        if self.bytes.len() as u64 == self.length {
            self.bytes.pop();
        }
        self.length -= 1;
    }
}

/// Where in a field the next byte stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Bare,
    Quoted,
    /// Behind a quote in a quoted field: its end, or the first half of a doubled quote.
    Quote,
}

/// Reads a file field by field.
pub struct Fields {
    reader: BufReader<TextFile>,
    path: Arc<Path>,
    delimiter: u8,
    has_quotes: bool,
    /// The line of the next byte, from 1.
    line: u64,
    record_line: u64,
    starts_record: bool,
    /// Whether the record so far holds nothing, not even a quote or a delimiter.
    record_is_blank: bool,
}

impl Fields {
    pub(super) fn open(file: &SourceFile, dialect: Dialect) -> Result<Self> {
        Self::of(file.open()?, Arc::clone(&file.path), dialect)
    }

    /// The fields of a table that errors call `path`.
    pub fn of(text: TextFile, path: Arc<Path>, dialect: Dialect) -> Result<Self> {
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, text);
        let start = reader.fill_buf().with_context(|| format!("cannot read `{}`, line 1", path.display()))?;
        if start.starts_with(BYTE_ORDER_MARK) {
            reader.consume(BYTE_ORDER_MARK.len());
        }
        let (delimiter, has_quotes) = match dialect {
            Dialect::Csv(separator) => (separator, true),
            Dialect::Tsv => (b'\t', false),
        };
        Ok(Self {
            reader,
            path,
            delimiter,
            has_quotes,
            line: 1,
            record_line: 1,
            starts_record: true,
            record_is_blank: true,
        })
    }

    /// The line on which the record at hand begins.
    pub fn record_line(&self) -> u64 {
        self.record_line
    }

    /// Whether the record that was read last is an empty line.
    pub fn record_is_blank(&self) -> bool {
        self.record_is_blank
    }

    /// Bytes of the file, as it lies on the disk, that have been read so far.
    pub fn position_bytes(&self) -> u64 {
        self.reader.get_ref().position_bytes()
    }

    /// A problem with the record at hand.
    pub fn problem(&self, message: impl Into<String>) -> Problem {
        Problem::new(message).at(format!("{}:{}", self.path.display(), self.record_line))
    }

    /// Reads a field into `kept`, which must be clear.
    pub fn next(&mut self, kept: Option<&mut Kept>) -> Result<End> {
        let starts_record = self.starts_record;
        if starts_record {
            (self.record_line, self.record_is_blank) = (self.line, true);
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
        // Only a `\r` outside of quotes belongs to the end of the line.
        let mut ends_in_bare_return = false;
        loop {
            let (path, line) = (&self.path, self.line);
            let chunk = self
                .reader
                .fill_buf()
                .with_context(|| format!("cannot read `{}`, line {line}", path.display()))?;
            let separator = match (state, chunk.first()) {
                (State::Start, None) if starts_record => return Ok(End::File),
                (State::Quoted, None) => return Err(self.unclosed()),
                (_, None) => Some(b'\n'),
                (State::Start, Some(b'"')) if self.has_quotes => {
                    self.record_is_blank = false;
                    self.reader.consume(1);
                    state = State::Quoted;
                    None
                }
                (State::Quote, Some(b'"')) => {
                    kept.push(b"\"");
                    self.reader.consume(1);
                    state = State::Quoted;
                    None
                }
                (State::Quoted, Some(_)) => {
                    state = self.quoted(kept);
                    None
                }
                (State::Start | State::Quote | State::Bare, Some(_)) => {
                    ends_in_bare_return &= state == State::Bare;
                    state = State::Bare;
                    self.bare(kept, &mut ends_in_bare_return)
                }
            };
            match separator {
                None => {}
                Some(b'\n') => {
                    if ends_in_bare_return {
                        kept.pop();
                    }
                    return Ok(End::Record);
                }
                Some(_) => return Ok(End::Field),
            }
        }
    }

    /// Reads what is buffered up to a quote, and the quote.
    fn quoted(&mut self, kept: &mut Kept) -> State {
        let chunk = self.reader.buffer();
        let end = chunk.iter().position(|byte| *byte == b'"');
        let part = &chunk[..end.unwrap_or(chunk.len())];
        kept.push(part);
        self.line += newlines(part);
        let count = part.len();
        self.reader.consume(count + usize::from(end.is_some()));
        if end.is_some() { State::Quote } else { State::Quoted }
    }

    /// Reads what is buffered up to a separator, and the separator, which it gives.
    fn bare(&mut self, kept: &mut Kept, ends_in_return: &mut bool) -> Option<u8> {
        let chunk = self.reader.buffer();
        let end = chunk.iter().position(|byte| *byte == self.delimiter || *byte == b'\n');
        let part = &chunk[..end.unwrap_or(chunk.len())];
        kept.push(part);
        if let Some(last) = part.last() {
            *ends_in_return = *last == b'\r';
            self.record_is_blank &= part == b"\r";
        }
        let (count, separator) = (part.len(), end.map(|end| chunk[end]));
        self.reader.consume(count + usize::from(end.is_some()));
        self.line += u64::from(separator == Some(b'\n'));
        separator
    }

    fn unclosed(&self) -> anyhow::Error {
        self.problem("a quote in this row is never closed")
            .hint("double a quote that belongs to the text")
            .into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::SourceConfig;
    use crate::corpus::read::files;

    fn records(text: &str, dialect: Dialect) -> Result<Vec<Vec<Vec<u8>>>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, text).unwrap();
        let found = files::find(&[SourceConfig::of_files(vec![path.to_str().unwrap().to_string()])]).unwrap();
        let mut fields = Fields::open(&found[0], dialect)?;
        let (mut records, mut record, mut kept) = (Vec::new(), Vec::new(), Kept::new(1000));
        loop {
            kept.clear();
            let end = fields.next(Some(&mut kept))?;
            if end == End::File {
                return Ok(records);
            }
            record.push(kept.bytes().to_vec());
            if end == End::Record {
                let record = std::mem::take(&mut record);
                if record.len() > 1 || !fields.record_is_blank() {
                    records.push(record);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn the_csv_crate_reads_the_same(text in "(\r\n|[,\t\"a\n ä]){0,40}", is_csv: bool) {
            let (dialect, delimiter) = if is_csv { (Dialect::Csv(b','), b',') } else { (Dialect::Tsv, b'\t') };
            let mut reader = csv::ReaderBuilder::new()
                .has_headers(false).flexible(true).delimiter(delimiter).quoting(is_csv).from_reader(text.as_bytes());
            let expected: Vec<Vec<Vec<u8>>> =
                reader.byte_records().map(|record| record.unwrap().iter().map(<[u8]>::to_vec).collect()).collect();
            // The crate takes a quote that is never closed for closed at the end of the file.
            if let Ok(found) = records(&text, dialect) {
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn another_separator_leaves_commas_alone() {
        let found = records("a,b;\"c;d\"\n", Dialect::Csv(b';')).unwrap();
        assert_eq!(found, [vec![b"a,b".to_vec(), b"c;d".to_vec()]]);
    }

    #[test]
    fn a_return_in_quotes_belongs_to_the_field() {
        let found = records("\"a\r\",\"b\r\"\r\n\"\"\r\n\r\nc\r\n", Dialect::Csv(b',')).unwrap();
        assert_eq!(found, [vec![b"a\r".to_vec(), b"b\r".to_vec()], vec![Vec::new()], vec![b"c".to_vec()]]);
    }
}
