//! Writes texts with their vectors as a Parquet file: `text`, `text_pair` and the list of numbers
//! `embedding`.
//!
//! Format: <https://parquet.apache.org/docs/file-format/>, lists as three levels.

use std::io;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, FloatType};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::tasks::embed::VectorFile;
use crate::tasks::labelled::TextPair;
use base::fs::StagedFile;

const SCHEMA: &str = "message embeddings { required binary text (STRING); optional binary text_pair (STRING); \
                      required group embedding (LIST) { repeated group list { required float element; } } }";

/// A file that is being written; it appears under its name only when it is complete.
pub(super) struct ParquetFile {
    writer: SerializedFileWriter<Sink>,
}

/// Adapts a [`StagedFile`] to the parquet crate, which needs a `Write` and returns its errors as I/O errors.
struct Sink(StagedFile);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ParquetFile {
    /// Starts the file `path`.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        // Values of vectors hardly repeat, so a dictionary would be larger than the values.
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_dictionary_enabled(false)
            .build();
        let writer =
            SerializedFileWriter::new(Sink(StagedFile::create(path)?), schema, Arc::new(properties))?;
        Ok(Self { writer })
    }
}

impl VectorFile for ParquetFile {
    fn write(&mut self, texts: &[TextPair], vectors: &[Vec<f32>]) -> Result<()> {
        let mut group = self.writer.next_row_group()?;
        let first: Vec<ByteArray> = texts.iter().map(|(text, _)| text.as_str().into()).collect();
        column::<ByteArrayType>(&mut group, &first, None, None)?;
        let second: Vec<ByteArray> =
            texts.iter().filter_map(|(_, pair)| Some(pair.as_deref()?.into())).collect();
        let is_there: Vec<i16> = texts.iter().map(|(_, pair)| i16::from(pair.is_some())).collect();
        column::<ByteArrayType>(&mut group, &second, Some(&is_there), None)?;
        let numbers: Vec<f32> = vectors.iter().flatten().copied().collect();
        // In each list, every number except the first one has repetition level 1.
        let repeats: Vec<i16> =
            vectors.iter().flat_map(|vector| (0..vector.len()).map(|at| i16::from(at > 0))).collect();
        column::<FloatType>(&mut group, &numbers, Some(&vec![1; numbers.len()]), Some(&repeats))?;
        group.close()?;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.writer.into_inner()?.0.publish(b"")
    }
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Sink>,
    values: &[T::T],
    definitions: Option<&[i16]>,
    repetitions: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("the schema has no more columns".to_string()));
    };
    column.typed::<T>().write_batch(values, definitions, repetitions)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::FileReader;
    use parquet::file::serialized_reader::SerializedFileReader;

    use super::*;

    #[test]
    fn rows_are_read_back_from_all_groups() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let mut file = Box::new(ParquetFile::create(&path).unwrap());
        let pair = ("ä \"b\"".to_string(), Some("c".to_string()));
        file.write(&[pair, ("d".to_string(), None)], &[vec![1.0, -2.5], vec![0.0, 3.0]]).unwrap();
        file.write(&[("e".to_string(), None)], &[vec![f32::MIN_POSITIVE, 4.0]]).unwrap();
        assert!(!path.exists());
        file.finish().unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        let rows: Vec<String> =
            reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        insta::assert_snapshot!(rows.join("\n"), @r#"
        {text: "ä "b"", text_pair: "c", embedding: [1.0, -2.5E0]}
        {text: "d", text_pair: null, embedding: [0E0, 3.0]}
        {text: "e", text_pair: null, embedding: [1.1754944E-38, 4.0]}
        "#);
    }
}
