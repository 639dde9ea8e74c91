//! Rows of CSV and TSV: a header line, then records with as many fields.

use std::io::Read;
use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;
use csv::ByteRecord;
use csv::ReaderBuilder;
use csv::Terminator;

use crate::error::Problem;
use crate::tasks::labelled::rows::Fields;
use crate::tasks::labelled::rows::Row;
use crate::tasks::labelled::rows::Source;

/// Put behind a table. The newline ends a last line without one, so that lines can be counted back from the
/// end of a row (the reader's own positions are those before blank lines, and halfway through a CRLF). The
/// zero byte is a row of its own, unless a quote is still open.
const END: &[u8] = b"\n\0";

/// The rows of a CSV or TSV file.
pub(super) struct TableRows {
    name: String,
    reader: csv::Reader<Box<dyn Read>>,
    header: Arc<Vec<String>>,
}

impl TableRows {
    /// A CSV file: fields may be quoted.
    pub(super) fn csv(source: Source) -> Result<Self> {
        Self::open(source, ReaderBuilder::new().delimiter(b','))
    }

    /// A TSV file: quotes are ordinary characters.
    pub(super) fn tsv(source: Source) -> Result<Self> {
        Self::open(source, ReaderBuilder::new().delimiter(b'\t').quoting(false))
    }

    fn open(Source { name, bytes }: Source, builder: &mut ReaderBuilder) -> Result<Self> {
        let bytes: Box<dyn Read> = Box::new(bytes.chain(END));
        let reader =
            builder.has_headers(false).flexible(true).terminator(Terminator::Any(b'\n')).from_reader(bytes);
        let mut rows = Self { name, reader, header: Arc::new(Vec::new()) };
        let Some((header, line)) = rows.next_record()? else {
            return Err(Problem::new("is empty, a line with the names of the columns is wanted")
                .at(rows.name)
                .into());
        };
        rows.header = Arc::new(rows.column_names(&header, line)?);
        Ok(rows)
    }

    fn column_names(&self, header: &ByteRecord, line: u64) -> Result<Vec<String>> {
        let place = format!("{}:{line}", self.name);
        let mut names: Vec<String> = Vec::new();
        for field in header {
            let name = std::str::from_utf8(field)
                .map_err(|_| Problem::new("the names of the columns are not UTF-8 text").at(&place))?;
            let name = name.trim();
            if names.iter().any(|known| known == name) {
                return Err(Problem::new(format!("column `{name}` is there twice")).at(place).into());
            }
            names.push(name.to_string());
        }
        Ok(names)
    }

    /// The next line that is not blank, without the `\r` of a CRLF, and the line on which it begins.
    fn next_record(&mut self) -> Result<Option<(ByteRecord, u64)>> {
        let mut record = ByteRecord::new();
        loop {
            let more = self
                .reader
                .read_byte_record(&mut record)
                .with_context(|| format!("cannot read `{}`", self.name))?;
            if !more || &record == [b"\0"].as_slice() {
                return Ok(None);
            }
            let newlines = record.iter().flatten().filter(|byte| **byte == b'\n').count() as u64;
            let end = self.reader.position().line();
            if record.iter().next_back().is_some_and(|last| last.ends_with(END)) {
                let place = format!("{}:{}", self.name, end - newlines);
                return Err(Problem::new("a quote in this row is never closed")
                    .at(place)
                    .hint("double a quote that belongs to the text")
                    .into());
            }
            let line = end - 1 - newlines;
            if let Some(last) = record.iter().next_back().and_then(|last| last.strip_suffix(b"\r")) {
                let mut fields: Vec<&[u8]> = record.iter().collect();
                fields.pop();
                record = fields.into_iter().chain([last]).collect();
            }
            if record.len() > 1 || record.get(0).is_some_and(|field| !field.is_empty()) {
                return Ok(Some((record, line)));
            }
        }
    }

    fn next_row(&mut self) -> Result<Option<Row>> {
        let Some((record, line)) = self.next_record()? else {
            return Ok(None);
        };
        if record.len() != self.header.len() {
            let message = format!(
                "{} here, but {} named in the first line",
                count(record.len(), "field is", "fields are"),
                self.header.len()
            );
            return Err(Problem::new(message)
                .at(format!("{}:{line}", self.name))
                .hint("look for a quote left open, or a separator inside a text that is not quoted")
                .into());
        }
        Ok(Some(Row {
            line,
            header_line: 1,
            fields: Fields::Table { header: Arc::clone(&self.header), record },
        }))
    }
}

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

impl Iterator for TableRows {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row().transpose()
    }
}
