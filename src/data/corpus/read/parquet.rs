//! Apache Parquet: reads a top-level column of strings, row by row, and optionally another one as the title.
//! `objects.rs` reads all columns of plain values and of lists.
//!
//! The `parquet` crate decodes the footer and the values; `pages.rs` reads the pages and limits their size.
//! The crate may panic on a broken file, so it is only called inside `quietly`.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use parquet::basic::Type;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::schema::types::ColumnDescPtr;

use crate::corpus::read::assembly::{Assembly, Origin, Records};
use crate::corpus::read::files::SourceFile;
use crate::corpus::read::json_object::known_names;
use crate::corpus::read::reading::Columns;
use crate::corpus::read::utf8::Decoded;
use base::error::Problem;
use base::fs;
use base::fs::File;
use base::quietly::quietly;
use pages::Pages;

mod class_names;
mod codecs;
mod delta;
mod header;
mod objects;
mod pages;

#[cfg(test)]
mod tests;

pub use objects::ParquetObjects;

/// Values that are decoded at a time; they share the memory of their page.
const BATCH_VALUES: usize = 256;

/// End of an error about an intact file that uses a feature which is not supported.
const NOT_READ: &str = "which is not read here";

/// Limit on the footer, in bytes: a thousand row groups of ten columns need about two megabytes.
const FOOTER_BYTES_MAX: u64 = 8 << 20;

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

/// Opens a file; returns it with its length in bytes and the metadata in its footer.
fn open_file(path: &Path) -> Result<(File, u64, ParquetMetaData)> {
    let place = path.display().to_string();
    let file = fs::open(path)?;
    let size_bytes = fs::len_bytes(path)?;
    let footer = check_footer(&file, size_bytes).map_err(|message| Problem::new(message).at(&place))?;
    let metadata = quietly(|| ParquetMetaDataReader::new().parse_and_finish(&file)).map_err(|message| {
        broken(&format!("in its index, bytes {} to {}: {message}", footer.start, footer.end), &place)
    })?;
    Ok((file, size_bytes, metadata))
}

fn broken(message: &str, place: &str) -> anyhow::Error {
    let hint = if message.contains(NOT_READ) {
        "the file is whole: write it again in the usual way, such as with `pyarrow.parquet.write_table`"
    } else {
        "is the file whole?"
    };
    Problem::new(format!("is not a Parquet file that can be read: {message}")).at(place).hint(hint).into()
}

/// Checks the last eight bytes of a file before anything is allocated for the size that they claim; returns
/// the range of the footer before them.
fn check_footer(file: &File, size_bytes: u64) -> Result<Range<u64>, String> {
    let mut tail = [0; 8];
    let start = size_bytes
        .checked_sub(8)
        .ok_or_else(|| format!("is too short for a Parquet file: it has {size_bytes} bytes"))?;
    pages::read_exact_at(file, start, &mut tail)?;
    let length = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    let magic = &tail[4..];
    match magic {
        b"PAR1" if length > start => {
            Err(format!("is not whole: its index has {length} bytes, the file {size_bytes}"))
        }
        b"PAR1" if length > FOOTER_BYTES_MAX => {
            Err(format!("has an index of {length} bytes, at most {FOOTER_BYTES_MAX} are read"))
        }
        b"PAR1" => Ok(start - length..start),
        b"PARE" => Err("is an encrypted Parquet file: it ends in `PARE`".to_string()),
        _ => Err("is not a Parquet file, or has been cut off: it does not end in `PAR1`".to_string()),
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
