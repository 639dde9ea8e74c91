//! Documents of Apache Parquet: a top-level column of strings, row by row, and optionally another one as the title.

use std::sync::Arc;

use anyhow::Result;
use parquet::basic::Type;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::ColumnDescPtr;

use crate::corpus::read::assembly::{Assembly, Origin, Records};
use crate::corpus::read::files::SourceFile;
use crate::corpus::read::json_object::known_names;
use crate::corpus::read::reading::Columns;
use crate::records::parquet::pages::Pages;
use crate::records::parquet::{BATCH_VALUES, broken, open_file};
use crate::records::utf8::Decoded;
use base::error::Problem;
use base::fs::File;
use base::quietly::quietly;

#[cfg(test)]
mod tests;

/// Reads documents from a Parquet file.
pub(super) struct ParquetRows {
    file: Arc<File>,
    place: String,
    size_bytes: u64,
    metadata: ParquetMetaData,
    columns: Columns,
    text: usize,
    title: Option<usize>,
    next_group: usize,
    group: Option<Group>,
    /// Rows read so far.
    rows: u64,
}

/// The wanted columns of a row group.
struct Group {
    text: Values,
    title: Option<Values>,
    rows_left: u64,
}

impl ParquetRows {
    pub(super) fn open(file: &SourceFile, columns: &Columns) -> Result<Self> {
        let place = file.path.display().to_string();
        let (handle, size_bytes, metadata) = open_file(&file.path)?;
        let text = column_of(&metadata, &columns.text, "field", &place)?;
        let title = columns
            .title
            .as_ref()
            .map(|name| column_of(&metadata, name, "title_field", &place))
            .transpose()?;
        let file = Arc::new(handle);
        let columns = columns.clone();
        Ok(Self {
            file,
            place,
            size_bytes,
            metadata,
            columns,
            text,
            title,
            next_group: 0,
            group: None,
            rows: 0,
        })
    }

    /// Opens the next row group; returns false after the last.
    fn open_group(&mut self) -> Result<bool> {
        if self.next_group >= self.metadata.num_row_groups() {
            return Ok(false);
        }
        let group = self.metadata.row_group(self.next_group);
        let opened = quietly(|| -> Result<_, ParquetError> {
            let text = self.values(self.text).map_err(ParquetError::General)?;
            let title = self.title.map(|column| self.values(column)).transpose();
            Ok((text, title.map_err(ParquetError::General)?))
        });
        let (text, title) = opened.map_err(|message| self.broken_group(&message))?;
        let rows_left = u64::try_from(group.num_rows())
            .map_err(|_| self.broken_group("the number of rows is negative"))?;
        self.group = Some(Group { text, title, rows_left });
        self.next_group += 1;
        Ok(true)
    }
    /// Opens a column of the next row group.
    fn values(&self, column: usize) -> Result<Values, String> {
        let group = self.metadata.row_group(self.next_group);
        let descriptor = group.schema_descr().column(column);
        let name = descriptor.name().to_string();
        let pages = Pages::new(Arc::clone(&self.file), self.size_bytes, group.column(column))
            .map_err(|message| format!("column `{name}`: {message}"))?;
        Ok(Values::new(descriptor, pages))
    }

    fn broken_group(&self, message: &str) -> anyhow::Error {
        broken(&format!("row group {}: {message}", self.next_group + 1), &self.place)
    }
}

impl Records for ParquetRows {
    fn advance(&mut self, out: &mut Assembly) -> Result<bool> {
        let Some(group) = self.group.as_mut().filter(|group| group.rows_left > 0) else {
            return self.open_group();
        };
        self.rows += 1;
        group.rows_left -= 1;
        let place = || format!("{}:{}", self.place, self.rows);
        let text = group.text.next().map_err(|message| broken(&message, &place()))?;
        let title = group
            .title
            .as_mut()
            .map(Values::next)
            .transpose()
            .map_err(|message| broken(&message, &place()))?
            .flatten();
        let mut decoded: [Option<Decoded<'_>>; 2] = [None, None];
        let title_name = self.columns.title.as_ref().unwrap_or(&self.columns.text);
        for ((value, name), decoded) in
            [(&text, &self.columns.text), (&title, title_name)].into_iter().zip(&mut decoded)
        {
            let Some(value) = value.as_ref().map(ByteArray::data) else { continue };
            if value.len() > out.line_bytes_max() {
                out.reject_too_long(self.rows, value.len() as u64, value);
                return Ok(true);
            }
            let whole = format!("column `{name}`");
            let Some(valid) = out.decode(value, Origin { line: self.rows, whole: &whole, offset: 0 })? else {
                return Ok(true);
            };
            *decoded = Some(valid);
        }
        let [text, title] = decoded;
        out.record(title, text, self.rows);
        Ok(true)
    }

    fn position_bytes(&self) -> u64 {
        let rows_all = self.metadata.file_metadata().num_rows().max(1) as f64;
        (self.size_bytes as f64 * (self.rows as f64 / rows_all).min(1.0)) as u64
    }
}

/// Reads the values of one column of one row group.
struct Values {
    reader: ColumnReaderImpl<ByteArrayType>,
    is_optional: bool,
    levels: Vec<i16>,
    batch: Vec<ByteArray>,
    /// Number of rows of the batch that were returned, and of their values, which null rows lack.
    used: (usize, usize),
    /// Number of rows in the batch.
    rows: usize,
}

impl Values {
    fn new(descriptor: ColumnDescPtr, pages: Pages) -> Self {
        let is_optional = descriptor.max_def_level() > 0;
        let reader = ColumnReaderImpl::new(descriptor, Box::new(pages));
        Self { reader, is_optional, levels: Vec::new(), batch: Vec::new(), used: (0, 0), rows: 0 }
    }

    /// Returns the value of the next row, `None` for null; fails if there is no further row.
    fn next(&mut self) -> Result<Option<ByteArray>, String> {
        if self.used.0 == self.rows {
            self.refill()?;
        }
        let is_null = self.is_optional && self.levels.get(self.used.0).is_none_or(|level| *level == 0);
        self.used.0 += 1;
        if is_null {
            return Ok(None);
        }
        let value = self.batch.get(self.used.1).cloned().ok_or("there are fewer values than rows")?;
        self.used.1 += 1;
        Ok(Some(value))
    }

    fn refill(&mut self) -> Result<(), String> {
        let Self { reader, levels, batch, .. } = self;
        levels.clear();
        batch.clear();
        let (rows, _, _) = quietly(|| reader.read_records(BATCH_VALUES, Some(levels), None, batch))?;
        if rows == 0 {
            return Err("there are fewer values than rows".to_string());
        }
        self.rows = rows;
        self.used = (0, 0);
        Ok(())
    }
}

/// Returns the index of the leaf that is the top-level column `name`.
fn column_of(metadata: &ParquetMetaData, name: &str, key: &str, place: &str) -> Result<usize> {
    let schema = metadata.file_metadata().schema_descr();
    let found = schema
        .columns()
        .iter()
        .position(|column| column.path().parts().first().is_some_and(|part| part == name));
    let Some(index) = found else {
        let fields = schema.root_schema().get_fields();
        let hint = known_names(key, "columns", fields.iter().map(|field| field.name()));
        return Err(Problem::new(format!("column `{name}` is missing")).at(place).hint(hint).into());
    };
    let column = schema.column(index);
    let is_plain =
        column.path().parts().len() == 1 && column.max_rep_level() == 0 && column.max_def_level() <= 1;
    if !is_plain || column.physical_type() != Type::BYTE_ARRAY {
        let kind = if is_plain { column.physical_type().to_string() } else { "nested".to_string() };
        let texts = schema
            .columns()
            .iter()
            .filter(|c| c.path().parts().len() == 1 && c.physical_type() == Type::BYTE_ARRAY);
        let hint = known_names(key, "columns of text", texts.map(|c| c.name()));
        return Err(Problem::new(format!("column `{name}` is {kind}, a column of strings is wanted"))
            .at(place)
            .hint(hint)
            .into());
    }
    Ok(index)
}
