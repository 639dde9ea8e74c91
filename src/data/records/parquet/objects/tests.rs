//! Writes lists and values of all kinds with the `parquet` crate and reads them back as objects; then reads
//! the same files with flipped bytes and false claims.

use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use base::rng::{Purpose, Stream};

/// Lists as written by pyarrow, as written by Spark, and in another form that the format allows.
const SCHEMA: &str = "message m {
    required int64 id;
    optional binary text (UTF8);
    optional boolean is_good;
    optional double score;
    optional int32 day (DATE);
    optional group tokens (LIST) { repeated group list { optional binary element (UTF8); } }
    required group tags (LIST) { repeated group array { required int32 item; } }
    repeated int32 bare;
    optional group nested (LIST) { repeated group list { optional group element (LIST) {
        repeated group list { optional int32 element; } } } }
    required group pair { required int32 a; required int32 b; }
}";

type Group<'a, 'b> = SerializedRowGroupWriter<'a, &'b mut Vec<u8>>;

type Levels<'a> = Option<&'a [i16]>;

fn column<T: DataType>(
    group: &mut Group<'_, '_>,
    values: &[T::T],
    definitions: Levels<'_>,
    repeats: Levels<'_>,
) {
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<T>().write_batch(values, definitions, repeats).unwrap();
    column.close().unwrap();
}

/// Writes a file of `rows` rows, in groups of at most 700; the content of a row depends on its number.
fn file(rows: i64, version: WriterVersion) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let properties = WriterProperties::builder()
        .set_writer_version(version)
        .set_compression(Compression::SNAPPY)
        .set_data_page_row_count_limit(90)
        .set_write_batch_size(30)
        .set_column_encoding("text".into(), parquet::basic::Encoding::DELTA_LENGTH_BYTE_ARRAY)
        .set_column_dictionary_enabled("text".into(), false)
        .build();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties)).unwrap();
    for first in (0..rows).step_by(700) {
        let ids: Vec<i64> = (first..rows.min(first + 700)).collect();
        let mut group = writer.next_row_group().unwrap();
        column::<Int64Type>(&mut group, &ids, None, None);
        let (present, levels) = present_ids(&ids, |id| id % 5 != 0);
        let texts: Vec<ByteArray> = present.iter().map(|id| format!("text {id}").as_str().into()).collect();
        column::<ByteArrayType>(&mut group, &texts, Some(&levels), None);
        let (present, levels) = present_ids(&ids, |id| id % 3 != 0);
        let truths: Vec<bool> = present.iter().map(|id| id % 2 == 0).collect();
        column::<BoolType>(&mut group, &truths, Some(&levels), None);
        let numbers: Vec<f64> = present.iter().map(|id| *id as f64 / 4.0).collect();
        column::<DoubleType>(&mut group, &numbers, Some(&levels), None);
        column::<Int32Type>(&mut group, &[], Some(&vec![0; ids.len()]), None);
        // A missing list, an empty one, one with a null in it, and longer ones.
        let mut words = Vec::<ByteArray>::new();
        let mut definitions = Vec::new();
        let mut repetitions = Vec::new();
        for id in &ids {
            let items: Vec<i16> = match id % 7 {
                0 => vec![0],
                1 => vec![1],
                length => (0..length).map(|item| if item == 1 { 2 } else { 3 }).collect(),
            };
            repetitions.extend((0..items.len()).map(|item| i16::from(item > 0)));
            words.extend(items.iter().filter(|level| **level == 3).map(|_| format!("w{id}").as_str().into()));
            definitions.extend(items);
        }
        column::<ByteArrayType>(&mut group, &words, Some(&definitions), Some(&repetitions));
        for _ in 0..2 {
            let mut numbers = Vec::new();
            let mut definitions = Vec::new();
            let mut repetitions = Vec::new();
            for id in &ids {
                let length = id % 4;
                numbers.extend((0..length).map(|item| (id * 10 + item) as i32));
                definitions.extend(if length == 0 { vec![0] } else { vec![1i16; length as usize] });
                repetitions.extend((0..length.max(1)).map(|item| i16::from(item > 0)));
            }
            column::<Int32Type>(&mut group, &numbers, Some(&definitions), Some(&repetitions));
        }
        let zeros = vec![0; ids.len()];
        column::<Int32Type>(&mut group, &[], Some(&zeros), Some(&zeros));
        for _ in 0..2 {
            column::<Int32Type>(&mut group, &vec![7; ids.len()], None, None);
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
    bytes
}

/// Returns the ids that are present, and the definition level of each id.
fn present_ids(ids: &[i64], is_present: fn(i64) -> bool) -> (Vec<i64>, Vec<i16>) {
    (
        ids.iter().copied().filter(|id| is_present(*id)).collect(),
        ids.iter().map(|id| is_present(*id).into()).collect(),
    )
}

/// Returns the row that [`file`] writes for `id`.
fn wanted(id: i64) -> Value {
    let tokens = match id % 7 {
        0 => Value::Null,
        length => (0..if length == 1 { 0 } else { length })
            .map(|item| if item == 1 { Value::Null } else { json!(format!("w{id}")) })
            .collect(),
    };
    let numbers: Vec<i64> = (0..id % 4).map(|item| id * 10 + item).collect();
    json!({
        "id": id,
        "text": (id % 5 != 0).then(|| format!("text {id}")),
        "is_good": (id % 3 != 0).then_some(id % 2 == 0),
        "score": (id % 3 != 0).then_some(id as f64 / 4.0),
        "tokens": tokens,
        "tags": numbers,
        "bare": numbers,
    })
}

/// Reads the rows of a file; an error is returned without the folder in it.
fn read(bytes: &[u8]) -> Result<Vec<Value>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    std::fs::write(&path, bytes).unwrap();
    let found = read_file(&path, bytes.len() as u64);
    found.map_err(|e| e.to_string().replace(&format!("{}/", folder.path().display()), ""))
}

fn read_file(path: &Path, size_bytes: u64) -> Result<Vec<Value>> {
    let mut objects = ParquetObjects::open(path)?;
    let mut found = Vec::new();
    while let Some(object) = objects.advance()? {
        found.push(Value::from(object));
        assert_eq!(objects.rows(), found.len() as u64);
    }
    assert!(objects.position_bytes() <= size_bytes);
    Ok(found)
}

#[test]
fn values_and_lists_of_all_kinds_are_read_and_others_are_skipped() {
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        let found = read(&file(1500, version)).unwrap();
        assert_eq!(found.len(), 1500);
        for (id, found) in (0..).zip(&found) {
            assert_eq!(*found, wanted(id), "{version:?}");
        }
    }
    assert_eq!(read(&file(0, WriterVersion::PARQUET_1_0)), Ok(vec![]));
}

#[test]
fn a_damaged_file_is_refused_by_name_without_a_panic() {
    let whole = file(300, WriterVersion::PARQUET_1_0);
    let error = read(&whole[..whole.len() - 9]).unwrap_err();
    assert!(error.contains("a.parquet") && error.contains("cut off"), "{error}");
    let stream = Stream::new(5, Purpose::Test, 0);
    let mut refused = 0;
    for turn in 0..400 {
        let mut damaged = whole.clone();
        let at = stream.below(2 * turn, whole.len() as u64 - 8) as usize;
        damaged[at] ^= 1 << stream.below(2 * turn + 1, 8);
        if let Err(error) = read(&damaged) {
            assert!(error.starts_with("a.parquet"), "{error}");
            refused += 1;
        }
    }
    assert!(refused > 20, "{refused}");
}

/// Tests a page of a few bytes that claims a very long list.
#[test]
fn a_list_that_is_longer_than_any_text_is_refused() {
    let schema = Arc::new(
        parse_message_type(
            "message m { optional group tags (LIST) { repeated group list { optional int32 element; } } }",
        )
        .unwrap(),
    );
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut list = group.next_column().unwrap().unwrap();
    let mut repeats = vec![1; 17 << 20];
    repeats[0] = 0;
    list.typed::<Int32Type>().write_batch(&[], Some(&vec![2; 17 << 20]), Some(&repeats)).unwrap();
    list.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    assert!(bytes.len() < 100_000, "{}", bytes.len());
    let error = read(&bytes).unwrap_err();
    assert!(error.contains("a few rows have lists of more than 16777216 values"), "{error}");
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(read(&bytes).is_err());
        prop_assert!(read(&[&bytes[..], b"PAR1"].concat()).is_err());
    }
}
