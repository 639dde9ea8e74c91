//! All columns of a Parquet file that hold texts, numbers, truth values or lists of these, row by row.
//!
//! Columns of anything else are passed over: they are not there.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use anyhow::Result;
use parquet::basic::ConvertedType;
use parquet::basic::LogicalType;
use parquet::basic::Repetition;
use parquet::basic::Type;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::BoolType;
use parquet::data_type::ByteArray;
use parquet::data_type::ByteArrayType;
use parquet::data_type::DataType;
use parquet::data_type::DoubleType;
use parquet::data_type::FloatType;
use parquet::data_type::Int32Type;
use parquet::data_type::Int64Type;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::ColumnDescPtr;
use parquet::schema::types::SchemaDescriptor;
use parquet::schema::types::Type as SchemaType;
use serde_json::Map;
use serde_json::Value;

use crate::corpus::read::parquet::BATCH_VALUES;
use crate::corpus::read::parquet::broken;
use crate::corpus::read::parquet::class_names::class_names;
use crate::corpus::read::parquet::open_file;
use crate::corpus::read::parquet::pages::Pages;
use crate::fs::File;
use crate::quietly::quietly;

/// The rows of a Parquet file, as objects.
pub struct ParquetObjects {
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
    /// Its place among the leaves of the schema.
    leaf: usize,
    kind: Type,
    /// The definition level from which on a list has items; `None` for no list.
    item_level: Option<i16>,
    /// The definition level of a value.
    value_level: i16,
}

impl ParquetObjects {
    /// Opens the file at `path`.
    pub fn open(path: &Path) -> Result<Self> {
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

    /// The names that the file gives to the numbers of a column, or to those in its lists.
    pub fn class_names(&self, column: &str) -> Option<Vec<String>> {
        class_names(self.metadata.file_metadata().key_value_metadata(), column)
    }

    /// Rows read so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes of the file that have been read so far, about.
    pub fn position_bytes(&self) -> u64 {
        let rows_all = self.metadata.file_metadata().num_rows().max(1) as f64;
        (self.size_bytes as f64 * (self.rows as f64 / rows_all).min(1.0)) as u64
    }

    fn open_group(&mut self) -> Result<()> {
        let group = self.metadata.row_group(self.next_group);
        self.next_group += 1;
        let number = self.next_group;
        let in_group = |message: &str| broken(&format!("row group {number}: {message}"), &self.place);
        let opened = quietly(|| -> Result<Vec<Box<dyn Cells>>, ParquetError> {
            let cells = |column: &Column| {
                let pages = Pages::new(Arc::clone(&self.file), self.size_bytes, group.column(column.leaf))
                    .map_err(|message| format!("column `{}`: {message}", column.name))?;
                Ok(cells_of(column, group.schema_descr().column(column.leaf), pages))
            };
            self.columns.iter().map(cells).collect::<Result<_, String>>().map_err(ParquetError::General)
        });
        self.group = opened.map_err(|message| in_group(&message))?;
        self.rows_left =
            u64::try_from(group.num_rows()).map_err(|_| in_group("the number of rows is negative"))?;
        Ok(())
    }

    /// The next row; `None` behind the last. An error names the file and the row, from 1.
    pub fn advance(&mut self) -> Result<Option<Map<String, Value>>> {
        while self.rows_left == 0 {
            if self.next_group >= self.metadata.num_row_groups() {
                return Ok(None);
            }
            self.open_group()?;
        }
        self.rows_left -= 1;
        self.rows += 1;
        let (mut object, place) = (Map::new(), format!("{}:{}", self.place, self.rows));
        for (column, cells) in self.columns.iter().zip(&mut self.group) {
            let value = cells
                .next()
                .map_err(|message| broken(&format!("column `{}`: {message}", column.name), &place))?;
            object.insert(column.name.clone(), value);
        }
        Ok(Some(object))
    }
}

/// The columns that are read: values of known kinds, and lists of them.
fn columns(schema: &SchemaDescriptor) -> Vec<Column> {
    let leaves = schema.columns();
    let of_field = |field: &Arc<SchemaType>| {
        let is_its =
            |leaf: &ColumnDescPtr| leaf.path().parts().first().is_some_and(|part| part == field.name());
        let mut own = leaves.iter().enumerate().filter(|(_, leaf)| is_its(leaf));
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
    };
    schema.root_schema().get_fields().iter().filter_map(of_field).collect()
}

/// Whether values are what their physical type says: a date or a decimal is stored as a number and is none.
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

/// The definition level from which on the only list of a field has items.
fn item_level(field: &SchemaType) -> i16 {
    let (mut node, mut level) = (field, 0);
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

/// The cells of one column of a row group, one after the other.
trait Cells {
    /// The next one; an error where there is none.
    fn next(&mut self) -> Result<Value, String>;
}

fn cells_of(column: &Column, descriptor: ColumnDescPtr, pages: Pages) -> Box<dyn Cells> {
    let of = column.clone();
    match column.kind {
        Type::BOOLEAN => Box::new(Typed::<BoolType>::new(of, descriptor, pages, |value| Ok((*value).into()))),
        Type::INT32 => Box::new(Typed::<Int32Type>::new(of, descriptor, pages, |value| Ok((*value).into()))),
        Type::INT64 => Box::new(Typed::<Int64Type>::new(of, descriptor, pages, |value| Ok((*value).into()))),
        Type::FLOAT => {
            Box::new(Typed::<FloatType>::new(of, descriptor, pages, |value| Ok(number(f64::from(*value)))))
        }
        Type::DOUBLE => Box::new(Typed::<DoubleType>::new(of, descriptor, pages, |value| Ok(number(*value)))),
        _ => Box::new(Typed::<ByteArrayType>::new(of, descriptor, pages, text)),
    }
}

/// JSON has no number for what is not finite.
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
    /// How many levels and how many values have been handed out, and how many levels there are.
    level: usize,
    used: usize,
    levels: usize,
    /// Values of lists that were read since the last batch.
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
        let read = || reader.read_records(BATCH_VALUES, Some(definitions), Some(repetitions), values);
        let (rows, values, levels) = quietly(read)?;
        if rows == 0 {
            return Err("there are fewer values than rows".to_string());
        }
        // Where nothing may be missing, nothing has a level.
        (self.level, self.used, self.levels) = (0, 0, levels.max(values));
        Ok(())
    }

    /// The value of the current level, which is handed out.
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

    /// The definition level of what comes next.
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
            // One below is a list without items; below that there is no list.
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
