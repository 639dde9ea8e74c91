//! Rows of CSV and TSV: a header line, then records with the same number of fields.
//!
//! The corpus reads its tables with the same [`TableFields`], which store no more of a field than allowed.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use csv::ByteRecord;

use crate::records::fields::{Dialect, End, Fields as TableFields, Kept, header_of};
use crate::records::rows::{Fields, ROW_BYTES_MAX, Row, RowError, Rows, Source};

/// The rows of a CSV or TSV file.
pub(super) struct TableRows {
    fields: TableFields,
    header: Arc<Vec<String>>,
    kept: Kept,
}

impl TableRows {
    pub(super) fn open(source: Source, dialect: Dialect) -> Result<Self> {
        let mut fields = TableFields::new(source.text, Path::new(&source.name).into(), dialect)?;
        let header = header_of(&mut fields)?;
        let mut seen = BTreeSet::new();
        if let Some(twice) = header.iter().find(|name| !seen.insert(name.as_str())) {
            return Err(fields.problem(format!("column `{twice}` is there twice")).into());
        }
        Ok(Self { fields, header: Arc::new(header), kept: Kept::new(ROW_BYTES_MAX) })
    }

    fn next_row(&mut self) -> Result<Option<Row>, RowError> {
        let mut record = ByteRecord::new();
        let mut count = self.read(&mut record)?;
        while count == 1 && self.fields.record_is_blank() {
            count = self.read(&mut record)?;
        }
        if count == 0 {
            return Ok(None);
        }
        self.require_closed_quotes()?;
        if let Some(problem) = self.fields.wrong_count(count, self.header.len()) {
            return Err(RowError::Row(problem));
        }
        let fields = Fields::Table { header: Arc::clone(&self.header), record };
        Ok(Some(Row { line: self.fields.record_line(), header_line: self.fields.header_line(), fields }))
    }

    /// Returns an error for an unclosed quote, which may have swallowed any number of rows.
    fn require_closed_quotes(&self) -> Result<()> {
        self.fields.open_quote().map_or(Ok(()), |problem| Err(problem.into()))
    }

    /// Reads a row into `record`, keeping at most as many fields as the header has. Returns the number of
    /// fields of the row, 0 at the end of the file.
    fn read(&mut self, record: &mut ByteRecord) -> Result<usize> {
        record.clear();
        let mut count = 0;
        let mut bytes = 0;
        loop {
            self.kept.clear();
            let end = self.fields.next(Some(&mut self.kept))?;
            if end == End::File {
                return Ok(0);
            }
            count += 1;
            bytes += self.kept.length();
            if bytes > ROW_BYTES_MAX as u64 {
                self.require_closed_quotes()?;
                let message = format!("the row is longer than {ROW_BYTES_MAX} bytes");
                return Err(self.fields.problem(message).hint("look for a quote left open").into());
            }
            if count <= self.header.len() {
                record.push_field(self.kept.bytes());
            }
            if end == End::Record {
                return Ok(count);
            }
        }
    }
}

impl Iterator for TableRows {
    type Item = Result<Row, RowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row().transpose()
    }
}

impl Rows for TableRows {
    fn position_bytes(&self) -> u64 {
        self.fields.position_bytes()
    }
}
