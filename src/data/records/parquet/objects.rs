//! Reads all columns of a Parquet file that contain texts, numbers, truth values or lists of these, row by
//! row.
//!
//! Other columns are skipped, as if they did not exist.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor, Type as SchemaType};
use serde_json::{Map, Value};

use crate::records::parquet::class_names::class_names;
use crate::records::parquet::pages::Pages;
use crate::records::parquet::{BATCH_VALUES, broken, open_file};
use base::fs::File;
use base::quietly::quietly;

/// Reads the rows of a Parquet file as JSON objects.
pub(crate) struct ParquetObjects {
    file: Arc<File>,
    place: String,
    size_bytes: u64,
    metadata: ParquetMetaData,
    columns: Vec<Column>,
    next_group: usize,
    group: Vec<Box<dyn Cells>>,
    rows_left: u64,
    rows: u64,
}

/// A top-level column that is read.
#[derive(Debug, Clone)]
struct Column {
    name: String,
    /// Index among the leaves of the schema.
    leaf: usize,
    kind: Type,
    /// Least definition level at which a list has items; `None` if the column is not a list.
    item_level: Option<i16>,
    /// Definition level of a value that is not null.
    value_level: i16,
}

impl ParquetObjects {
    /// Opens the file at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let (file, size_bytes, metadata) = open_file(path)?;
        let columns = columns(metadata.file_metadata().schema_descr());
        Ok(Self {
            file: Arc::new(file),
            place: path.display().to_string(),
            size_bytes,
            metadata,
            columns,
            next_group: 0,
            group: Vec::new(),
            rows_left: 0,
            rows: 0,
        })
    }

    /// Returns the class names that the file has for the numbers in a column, or in its lists.
    pub(crate) fn class_names(&self, column: &str) -> Option<Vec<String>> {
        class_names(self.metadata.file_metadata().key_value_metadata(), column)
    }

    /// Returns the number of rows read so far.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns about how many bytes of the file have been read so far.
    pub(crate) fn position_bytes(&self) -> u64 {
        let rows_all = self.metadata.file_metadata().num_rows().max(1) as f64;
        (self.size_bytes as f64 * (self.rows as f64 / rows_all).min(1.0)) as u64
    }

    fn open_group(&mut self) -> Result<()> {
        let group = self.metadata.row_group(self.next_group);
        self.next_group += 1;
        let opened = quietly(|| -> Result<Vec<Box<dyn Cells>>, ParquetError> {
            let mut opened = Vec::with_capacity(self.columns.len());
            for column in &self.columns {
                let pages = Pages::new(Arc::clone(&self.file), self.size_bytes, group.column(column.leaf))
                    .map_err(|message| {
                        ParquetError::General(format!("column `{}`: {message}", column.name))
                    })?;
                opened.push(cells_of(column, group.schema_descr().column(column.leaf), pages));
            }
            Ok(opened)
        });
        self.group = opened.map_err(|message| self.broken_group(&message))?;
        self.rows_left = u64::try_from(group.num_rows())
            .map_err(|_| self.broken_group("the number of rows is negative"))?;
        Ok(())
    }

    /// Returns an error in the row group that was opened last.
    fn broken_group(&self, message: &str) -> anyhow::Error {
        broken(&format!("row group {}: {message}", self.next_group), &self.place)
    }

    /// Returns the next row; `None` after the last. An error names the file and the row, from 1.
    pub(crate) fn advance(&mut self) -> Result<Option<Map<String, Value>>> {
        while self.rows_left == 0 {
            if self.next_group >= self.metadata.num_row_groups() {
                return Ok(None);
            }
            self.open_group()?;
        }
        self.rows_left -= 1;
        self.rows += 1;
        let mut object = Map::new();
        let place = format!("{}:{}", self.place, self.rows);
        for (column, cells) in self.columns.iter().zip(&mut self.group) {
            let value = cells
                .next()
                .map_err(|message| broken(&format!("column `{}`: {message}", column.name), &place))?;
            object.insert(column.name.clone(), value);
        }
        Ok(Some(object))
    }
}

/// Returns the columns that are read: values of known kinds, and lists of them.
fn columns(schema: &SchemaDescriptor) -> Vec<Column> {
    schema
        .root_schema()
        .get_fields()
        .iter()
        .filter_map(|field| column_of_field(schema.columns(), field))
        .collect()
}

fn column_of_field(leaves: &[ColumnDescPtr], field: &Arc<SchemaType>) -> Option<Column> {
    let mut own = leaves
        .iter()
        .enumerate()
        .filter(|(_, leaf)| leaf.path().parts().first().is_some_and(|part| part == field.name()));
    let ((leaf, descriptor), None) = (own.next()?, own.next()) else { return None };
    let is_list = descriptor.max_rep_level() == 1;
    if descriptor.max_rep_level() > 1 || !is_list && descriptor.path().parts().len() > 1 {
        return None;
    }
    is_known(descriptor).then(|| Column {
        name: field.name().to_string(),
        leaf,
        kind: descriptor.physical_type(),
        item_level: is_list.then(|| item_level(field)),
        value_level: descriptor.max_def_level(),
    })
}

/// True if the physical type of a column is its meaning. A date or a decimal is stored as a number, but is
/// not one.
fn is_known(column: &ColumnDescPtr) -> bool {
    let is_plain = matches!(
        column.converted_type(),
        ConvertedType::NONE
            | ConvertedType::UTF8
            | ConvertedType::ENUM
            | ConvertedType::JSON
            | ConvertedType::INT_8
            | ConvertedType::INT_16
            | ConvertedType::INT_32
            | ConvertedType::INT_64
            | ConvertedType::UINT_8
            | ConvertedType::UINT_16
    );
    let is_as_stored = matches!(
        column.logical_type_ref(),
        None | Some(LogicalType::String | LogicalType::Enum | LogicalType::Json | LogicalType::Integer(_))
    );
    is_plain && is_as_stored && !matches!(column.physical_type(), Type::INT96 | Type::FIXED_LEN_BYTE_ARRAY)
}

/// Returns the least definition level at which the only list of a field has items.
fn item_level(field: &SchemaType) -> i16 {
    let mut node = field;
    let mut level = 0;
    loop {
        let repetition = node.get_basic_info().has_repetition().then(|| node.get_basic_info().repetition());
        level += i16::from(repetition.is_some_and(|is| is != Repetition::REQUIRED));
        match node {
            SchemaType::GroupType { fields, .. } if repetition != Some(Repetition::REPEATED) => {
                let Some(next) = fields.first() else { return level };
                node = next;
            }
            _ => return level,
        }
    }
}

/// Reads the cells of one column of a row group in sequence.
trait Cells {
    /// Returns the next cell; fails if there is none.
    fn next(&mut self) -> Result<Value, String>;
}

fn cells_of(column: &Column, descriptor: ColumnDescPtr, pages: Pages) -> Box<dyn Cells> {
    let owned = column.clone();
    match column.kind {
        Type::BOOLEAN => {
            Box::new(Typed::<BoolType>::new(owned, descriptor, pages, |value| Ok((*value).into())))
        }
        Type::INT32 => {
            Box::new(Typed::<Int32Type>::new(owned, descriptor, pages, |value| Ok((*value).into())))
        }
        Type::INT64 => {
            Box::new(Typed::<Int64Type>::new(owned, descriptor, pages, |value| Ok((*value).into())))
        }
        Type::FLOAT => {
            Box::new(Typed::<FloatType>::new(owned, descriptor, pages, |value| Ok(number(f64::from(*value)))))
        }
        Type::DOUBLE => {
            Box::new(Typed::<DoubleType>::new(owned, descriptor, pages, |value| Ok(number(*value))))
        }
        _ => Box::new(Typed::<ByteArrayType>::new(owned, descriptor, pages, text)),
    }
}

/// Converts a number to JSON; infinities and NaN become null, since JSON has no number for them.
fn number(value: f64) -> Value {
    serde_json::Number::from_f64(value).map_or(Value::Null, Value::from)
}

fn text(value: &ByteArray) -> Result<Value, String> {
    let text = std::str::from_utf8(value.data()).map_err(|_| "a value is not UTF-8 text".to_string())?;
    Ok(text.into())
}

/// Cells of one physical type.
struct Typed<T: DataType> {
    column: Column,
    reader: ColumnReaderImpl<T>,
    value: fn(&T::T) -> Result<Value, String>,
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
    values: Vec<T::T>,
    /// Index of the next level.
    level: usize,
    /// Index of the next value.
    used: usize,
    /// Number of levels in the batch.
    levels: usize,
    /// Number of list values read for the current batch; shared with the page reader, which limits it.
    list_values: Arc<AtomicU64>,
}

impl<T: DataType> Typed<T> {
    fn new(
        column: Column,
        descriptor: ColumnDescPtr,
        pages: Pages,
        value: fn(&T::T) -> Result<Value, String>,
    ) -> Self {
        let list_values = pages.list_values();
        Self {
            list_values,
            column,
            reader: ColumnReaderImpl::new(descriptor, Box::new(pages)),
            value,
            definitions: Vec::new(),
            repetitions: Vec::new(),
            values: Vec::new(),
            level: 0,
            used: 0,
            levels: 0,
        }
    }

    fn refill(&mut self) -> Result<(), String> {
        let Self { reader, definitions, repetitions, values, .. } = self;
        self.list_values.store(0, Ordering::Relaxed);
        definitions.clear();
        repetitions.clear();
        values.clear();
        let (rows, values, levels) =
            quietly(|| reader.read_records(BATCH_VALUES, Some(definitions), Some(repetitions), values))?;
        if rows == 0 {
            return Err("there are fewer values than rows".to_string());
        }
        // A column in which nothing can be missing has no levels.
        self.level = 0;
        self.used = 0;
        self.levels = levels.max(values);
        Ok(())
    }

    /// Returns the value at the current level, and advances past it.
    fn take(&mut self) -> Result<Value, String> {
        let is_there = self.definition() == self.column.value_level;
        self.level += 1;
        if !is_there {
            return Ok(Value::Null);
        }
        let value = self.values.get(self.used).ok_or("there are fewer values than rows")?;
        self.used += 1;
        (self.value)(value)
    }

    /// Returns the definition level at the current position.
    fn definition(&self) -> i16 {
        self.definitions.get(self.level).copied().unwrap_or(self.column.value_level)
    }
}

impl<T: DataType> Cells for Typed<T> {
    fn next(&mut self) -> Result<Value, String> {
        if self.level == self.levels {
            self.refill()?;
        }
        let Some(item_level) = self.column.item_level else { return self.take() };
        let definition = self.definition();
        if definition < item_level {
            self.level += 1;
            // One level less is a list without items; less than that is a missing list.
            let is_list = definition + 1 == item_level;
            return Ok(if is_list { Value::Array(Vec::new()) } else { Value::Null });
        }
        let mut items = vec![self.take()?];
        while self.level < self.levels && self.repetitions.get(self.level) == Some(&1) {
            items.push(self.take()?);
        }
        Ok(items.into())
    }
}

#[cfg(test)]
mod tests;
