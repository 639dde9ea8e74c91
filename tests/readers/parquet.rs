//! Corpora in Apache Parquet: plain, and with each codec, version of pages and encoding.

use std::path::Path;
use std::sync::Arc;

use parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::json;

use super::{Input, corpora};

pub(super) fn all(folder: &Path) -> Vec<Input> {
    let plain = WriterProperties::builder;
    let v2 = |encoding| {
        let plain = plain().set_writer_version(WriterVersion::PARQUET_2_0).set_dictionary_enabled(false);
        plain.set_encoding(encoding)
    };
    let kinds = [
        ("corpus.parquet", plain(), "required"),
        ("gzip.parquet", plain().set_compression(Compression::GZIP(GzipLevel::default())), "optional"),
        ("snappy.parquet", v2(Encoding::PLAIN).set_compression(Compression::SNAPPY), "optional"),
        ("zstd.parquet", plain().set_compression(Compression::ZSTD(ZstdLevel::default())), "required"),
        ("brotli.parquet", plain().set_compression(Compression::BROTLI(BrotliLevel::default())), "required"),
        ("lz4.parquet", v2(Encoding::PLAIN).set_compression(Compression::LZ4_RAW), "required"),
        ("hadoop.parquet", plain().set_compression(Compression::LZ4), "optional"),
        ("delta.parquet", v2(Encoding::DELTA_LENGTH_BYTE_ARRAY), "optional"),
    ];
    let input = |(name, properties, repetition): (&str, WriterPropertiesBuilder, &str)| {
        corpora::corpus(folder, name, &json!({}), bytes(properties.build(), repetition))
    };
    kinds.into_iter().map(input).collect()
}

fn bytes(properties: WriterProperties, repetition: &str) -> Vec<u8> {
    let schema = format!("message rows {{ {repetition} binary text (UTF8); }}");
    let schema = Arc::new(parse_message_type(&schema).unwrap());
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    // Two row groups, so that there is more than one of everything.
    for texts in corpora::texts().chunks(corpora::DOCUMENTS as usize / 2) {
        let values: Vec<ByteArray> = texts.iter().map(|text| text.as_str().into()).collect();
        let levels = (repetition == "optional").then(|| vec![1; values.len()]);
        let mut group = file.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&values, levels.as_deref(), None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    file.into_inner().unwrap()
}
