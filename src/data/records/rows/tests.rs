//! Tests of labelled files whose content does not match their names.

use std::io::Write;

use super::*;

fn read(name: &str, bytes: &[u8]) -> Result<Vec<Map<String, Value>>> {
    read_encoded(name, bytes, None)
}

fn read_encoded(name: &str, bytes: &[u8], encoding: Option<TextEncoding>) -> Result<Vec<Map<String, Value>>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let format = RowFormat::of(&path).unwrap();
    let rows =
        rows_of(&path, format, encoding).and_then(|rows| Ok(rows.collect::<Result<Vec<Row>, RowError>>()?));
    let rows = rows
        .map_err(|e| anyhow::anyhow!(format!("{e:#}").replace(&folder.path().display().to_string(), "")))?;
    rows.into_iter().map(|row| Ok(row.into_fields()?)).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn rows_of_an_older_encoding_are_converted() {
    for (name, content) in [
        ("a.csv", &b"text,label\nCaf\xe9 \x80,x\n"[..]),
        ("a.tsv", b"text\tlabel\nCaf\xe9 \x80\tx\n"),
        ("a.jsonl", b"{\"text\": \"Caf\xe9 \x80\", \"label\": \"x\"}\n"),
    ] {
        let rows = read_encoded(name, content, TextEncoding::named("windows-1252")).unwrap();
        assert_eq!(rows[0]["text"], "Caf\u{e9} \u{20ac}", "{name}");
    }
}

#[test]
fn two_rows_are_read_in_every_disguise() {
    let json = "[{\"text\": \"a, b\", \"label\": \"x\"},\n {\"text\": \"c\", \"label\": \"y\"}]";
    let objects = "{\"text\": \"a, b\", \"label\": \"x\"}\n{\"text\": \"c\", \"label\": \"y\"}\n";
    let files: [(&str, Vec<u8>); 12] = [
        ("utf16.csv", utf16("text,label\r\n\"a, b\",x\r\nc,y\r\n")),
        ("semi.csv", b"text;label\na, b;x\nc;y\n".to_vec()),
        ("sepline.csv", b"sep=,\ntext,label\n\"a, b\",x\nc,y\n".to_vec()),
        ("cr.csv", b"text,label\r\"a, b\",x\rc,y\r".to_vec()),
        ("tabs.csv", b"text\tlabel\r\na, b\tx\r\nc\ty".to_vec()),
        ("mixed.tsv", b"text\tlabel\na, b\tx\rc\ty\r\n".to_vec()),
        ("array.json", json.as_bytes().to_vec()),
        ("array.jsonl.gz", gzip(json.as_bytes())),
        ("gzip.jsonl", gzip(objects.as_bytes())),
        ("plain.jsonl.xz", objects.as_bytes().to_vec()),
        ("padded.jsonl.gz", [gzip(objects.as_bytes()), vec![0; 512]].concat()),
        ("utf16.jsonl", utf16(objects)),
    ];
    for (name, bytes) in files {
        let found = serde_json::to_value(read(name, &bytes).unwrap()).unwrap();
        assert_eq!(found, serde_json::from_str::<Value>(json).unwrap(), "{name}");
    }
}

/// Big-endian UTF-16 with a byte-order mark.
fn utf16(text: &str) -> Vec<u8> {
    [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_be_bytes).collect()
}

#[test]
fn nan_and_infinity_are_read_as_null() {
    for (name, text) in [
        ("nan.jsonl", "{\"text\": \"a\", \"score\": NaN}\n{\"text\": \"NaN\", \"score\": -Infinity}\n"),
        ("nan.json", "[{\"text\": \"a\", \"score\": NaN}, {\"text\": \"NaN\", \"score\": -Infinity}]"),
    ] {
        let found = serde_json::to_value(read(name, text.as_bytes()).unwrap()).unwrap();
        assert_eq!(
            found,
            serde_json::json!([{"text": "a", "score": null}, {"text": "NaN", "score": null}]),
            "{name}"
        );
    }
}

#[test]
fn anything_else_is_refused_with_the_true_reason() {
    let files: [(&str, &[u8], &str); 10] = [
        ("a.csv", b"PK\x03\x04\x14\0", "/a.csv: is a zip archive"),
        ("b.csv", b"<!doctype html>\n<html>", "/b.csv: is a page of HTML, a file of rows is wanted"),
        ("c.jsonl", b"version https://git-lfs.github.com/spec/v1\n", "/c.jsonl: is a pointer of git-lfs"),
        ("d.parquet", b"\x1f\x8b\x08\0", "/d.parquet: is compressed by gzip, a Parquet file is wanted"),
        ("e.csv", b"t\0e\0x\0t\0\n\0a\0\n\0", "/e.csv: is UTF-16 text without a byte-order mark"),
        ("f.csv", b"text,label\nCaf\xe9 \x96 \x805,x\n", "iconv -f cp1252"),
        ("g.csv", b"text,label\nCaf\xe9,x\n", "iconv -f latin1"),
        (
            "h.csv",
            b"text,label\n1,\"open\n2,two\n3,\"three\n",
            "/h.csv:2: a quote opened in this row ends in line 4",
        ),
        ("i.jsonl", b"WARC/1.0\r\n", "/i.jsonl: is a web archive (WARC), one table of rows is wanted"),
        (
            "j.json",
            b"[{\"text\": \"a\"}, {\"text\":",
            "/j.json:1:17: the file ends in the middle of this object",
        ),
    ];
    for (name, bytes, reason) in files {
        let found = read(name, bytes).unwrap_err().to_string();
        assert!(found.contains(reason), "{name}: {found}");
    }
}
