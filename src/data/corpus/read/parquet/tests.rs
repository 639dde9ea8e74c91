//! Writes files with the `parquet` crate and reads them back; then reads the same files with flipped bytes
//! and false claims.

use std::sync::Arc;

use parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use crate::corpus::read::tests::{Folder, items, message, short};
use crate::corpus::{Corpus, Item};
use base::fs::testing::real_data;
use config::{DataConfig, InvalidUtf8};

const SCHEMA: &str = "message m { required int32 id; optional binary text (UTF8); required binary title (UTF8); required group g { required binary a (UTF8); } }";

type Row<'a> = (Option<&'a [u8]>, &'a str);

/// Writes a file with one row group per slice.
fn file(properties: WriterProperties, groups: &[&[Row<'_>]]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties)).unwrap();
    for rows in groups {
        let mut group = writer.next_row_group().unwrap();
        let ids: Vec<i32> = (0..rows.len() as i32).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&ids, None, None).unwrap();
        column.close().unwrap();
        let texts: Vec<ByteArray> =
            rows.iter().filter_map(|(text, _)| text.map(|text| text.to_vec().into())).collect();
        let levels: Vec<i16> = rows.iter().map(|(text, _)| i16::from(text.is_some())).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&texts, Some(&levels), None).unwrap();
        column.close().unwrap();
        for _ in 0..2 {
            let titles: Vec<ByteArray> = rows.iter().map(|(_, title)| (*title).into()).collect();
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<ByteArrayType>().write_batch(&titles, None, None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
    bytes
}

fn properties() -> WriterPropertiesBuilder {
    WriterProperties::builder()
}

#[test]
fn every_codec_page_version_and_encoding_is_read() {
    let texts: Vec<String> = (0..1000).map(|i| format!("Käki number {} of {}", i % 7, i / 3)).collect();
    let rows: Vec<Row<'_>> =
        texts.iter().enumerate().map(|(i, t)| ((i % 10 != 3).then_some(t.as_bytes()), "t")).collect();
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
        Compression::ZSTD(ZstdLevel::default()),
        Compression::LZ4_RAW,
        Compression::LZ4,
    ];
    for codec in codecs {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for encoding in [
                None,
                Some(Encoding::PLAIN),
                Some(Encoding::DELTA_LENGTH_BYTE_ARRAY),
                Some(Encoding::DELTA_BYTE_ARRAY),
            ] {
                let mut properties = properties()
                    .set_compression(codec)
                    .set_writer_version(version)
                    .set_data_page_row_count_limit(300);
                if let Some(encoding) = encoding {
                    properties = properties
                        .set_dictionary_enabled(false)
                        .set_column_encoding(ColumnPath::from("text"), encoding);
                }
                let bytes = file(properties.build(), &[&rows[..400], &rows[400..]]);
                let folder = Folder::with(&[("a.parquet", &bytes)]);
                let all = short(&folder.config_with("a.parquet", |_| ()));
                let expected = texts.iter().enumerate().map(|(i, text)| match i % 10 {
                    3 => format!("{} empty 0  |", i + 1),
                    _ => format!("{} {text}", i + 1),
                });
                assert!(all.into_iter().eq(expected), "{codec:?} {version:?} {encoding:?}");
            }
        }
    }
}

#[test]
fn titles_long_values_and_bad_bytes() {
    let rows: [Row<'_>; 4] = [
        (Some(b"one"), "First"),
        (Some(b"a\xe4b"), "Second"),
        (Some(&[b'x'; 2000]), "Third"),
        (Some(b"four\r\nlines"), " "),
    ];
    let folder = Folder::with(&[("a.parquet", &file(properties().build(), &[&rows]))]);
    let config = |invalid_utf8| {
        let config = folder.config_with("a.parquet", |source| {
            source.title_field = Some("title".to_string());
            source.invalid_utf8 = invalid_utf8;
        });
        DataConfig { max_line_bytes: 1024, ..config }
    };
    let skipped = short(&config(InvalidUtf8::Skip));
    assert_eq!(skipped[..2], ["1 First\none", "2 invalid_utf8 3 byte 1 of column `text` |a\u{fffd}b"]);
    assert!(skipped[2].starts_with("3 line_too_long 2000 2000 bytes, at most 1024 are read |xxx"));
    assert_eq!(skipped[3], "4 four\nlines");
    assert_eq!(short(&config(InvalidUtf8::Replace))[1], "2 Second\na\u{fffd}b");
    assert!(
        message(&folder, &config(InvalidUtf8::Fail))
            .starts_with("a.parquet:2: is not UTF-8 text (byte 1 of column `text`)")
    );
}

#[test]
fn errors_name_the_file_and_the_existing_columns() {
    let rows: [Row<'_>; 1] = [(Some(b"one"), "First")];
    let whole = file(properties().build(), &[&rows]);
    let folder = Folder::with(&[
        ("a.parquet", &whole),
        ("cut.parquet", &whole[..whole.len() - 20]),
        ("short.parquet", b"PAR1"),
        ("text.parquet", b"this is no parquet file"),
        ("long.parquet", b"PAR1\xff\xff\xff\x7fPAR1"),
        ("a.parquet.gz", b"\x1f\x8b\x08\0"),
        ("page.parquet", b"<!DOCTYPE html><html>"),
    ]);
    insta::assert_snapshot!(error_of(&folder, "a.parquet", "body"), @r"
    a.parquet: column `body` is missing
      hint: set `field` to one of the columns: `id`, `text`, `title`, `g`
    ");
    insta::assert_snapshot!(error_of(&folder, "a.parquet", "id"), @r"
    a.parquet: column `id` is INT32, a column of strings is wanted
      hint: set `field` to one of the columns of text: `text`, `title`
    ");
    assert!(
        error_of(&folder, "a.parquet", "g")
            .starts_with("a.parquet: column `g` is nested, a column of strings is wanted")
    );
    insta::assert_snapshot!(error_of(&folder, "cut.parquet", "text"), @"cut.parquet: is not a Parquet file, or has been cut off: it does not end in `PAR1`");
    insta::assert_snapshot!(error_of(&folder, "short.parquet", "text"), @"short.parquet: is too short for a Parquet file: it has 4 bytes");
    insta::assert_snapshot!(error_of(&folder, "text.parquet", "text"), @"text.parquet: is not a Parquet file, or has been cut off: it does not end in `PAR1`");
    insta::assert_snapshot!(error_of(&folder, "long.parquet", "text"), @"long.parquet: is not whole: its index has 2147483647 bytes, the file 12");
    insta::assert_snapshot!(error_of(&folder, "page.parquet", "text"), @r"
    page.parquet: is a page of HTML, a Parquet file is wanted
      hint: a server may have answered with a page instead of the file: fetch it again
    ");
    assert!(
        error_of(&folder, "a.parquet.gz", "text").starts_with("a.parquet.gz: is a compressed Parquet file")
    );
}

#[test]
fn damage_of_the_footer_is_reported_by_its_bytes_or_its_row_group() {
    let rows: [Row<'_>; 1] = [(Some(&[b'x'; 5000]), "First")];
    let whole = file(properties().set_dictionary_enabled(false).build(), &[&rows, &rows]);
    let end = whole.len() - 8;
    let start = end - u32::from_le_bytes(whole[end..end + 4].try_into().unwrap()) as usize;
    // The footer is a struct; an empty struct lacks the version.
    let empty = [&whole[..start], &[0; 1], &1u32.to_le_bytes(), b"PAR1"].concat();
    let expected = format!("in its index, bytes {start} to {}: ", start + 1);
    let error = error_of_file(&empty);
    assert!(error.contains(&expected), "{error}");
    // All column chunks begin after the end of the file.
    let shorter = [&whole[whole.len() - (end - start) - 8..]].concat();
    let error = error_of_file(&shorter);
    assert!(
        error.contains("row group 1: ") && error.contains("column `text`: a column lies outside"),
        "{error}"
    );
}

fn error_of(folder: &Folder, name: &str, field: &str) -> String {
    message(folder, &folder.config_with(name, |source| source.field = field.to_string()))
}

fn error_of_file(bytes: &[u8]) -> String {
    let folder = Folder::with(&[("a.parquet", bytes)]);
    message(&folder, &folder.config_with("a.parquet", |_| ()))
}

/// Reads a damaged file, and requires documents, or an error with the file name and a place in the file.
fn survive(folder: &Folder) {
    let config = folder.config_with("a.parquet", |source| {
        source.invalid_utf8 = InvalidUtf8::Replace;
        source.title_field = None;
    });
    match Corpus::open(&config).and_then(|corpus| corpus.documents().collect::<Result<Vec<Item>, _>>()) {
        Ok(_) => {}
        Err(e) => {
            let message = format!("{e:#}");
            let (_, place) = message.split_once("a.parquet").unwrap_or_else(|| panic!("{message}"));
            assert!(place.contains(|c: char| c.is_ascii_digit() || c == '`'), "{message}");
        }
    }
}

#[test]
fn every_byte_of_a_small_file_may_be_wrong() {
    let rows: Vec<Row<'_>> =
        (0..40).map(|i| ((i % 5 != 0).then_some(b"some text".as_slice()), "title")).collect();
    for codec in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(ZstdLevel::default())] {
        let whole = file(properties().set_compression(codec).build(), &[&rows]);
        for place in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[place] ^= [0x01, 0x80, 0xff][place % 3];
            survive(&Folder::with(&[("a.parquet", &bytes)]));
        }
        for end in (0..whole.len()).step_by(7) {
            survive(&Folder::with(&[("a.parquet", &[&whole[..end], &whole[whole.len() - 8..]].concat())]));
        }
    }
}

#[test]
fn a_real_file_with_flipped_bytes_gives_documents_or_an_error() {
    let Some(data) = real_data() else { return };
    let whole = std::fs::read(data.join("text_en/web_c4.parquet")).unwrap();
    let folder = Folder::with(&[("a.parquet", &whole)]);
    let documents = items(&folder.config_with("a.parquet", |_| ())).unwrap().len();
    assert_eq!(documents, ROWS);
    let footer =
        whole.len() - 8 - u32::from_le_bytes(whole[whole.len() - 8..][..4].try_into().unwrap()) as usize;
    // The footer and the first page headers determine most, and are a small part of the file.
    let places = (0..100)
        .map(|i| whole.len() / 100 * i)
        .chain((0..100).map(|i| 4 + i))
        .chain((0..100).map(|i| footer + i * 7));
    for (number, place) in places.enumerate() {
        let mut bytes = whole.clone();
        let place = place.min(whole.len() - 1);
        bytes[place] ^= [0x01, 0x10, 0x80, 0xff][number % 4];
        survive(&Folder::with(&[("a.parquet", &bytes)]));
    }
}

/// Number of rows in `web_c4.parquet`.
const ROWS: usize = 1480;
