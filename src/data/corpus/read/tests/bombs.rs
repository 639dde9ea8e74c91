//! Compressed files of a few kilobytes with a line of a gigabyte: its length is measured, but it is never in
//! memory.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use crate::corpus::read::{Limits, files};
use crate::corpus::{Corpus, Item};
use crate::records::lines::Lines;
use config::{DataConfig, SourceConfig};

const MEMBER_BYTES: usize = 16 << 20;
const MEMBERS: usize = 64;
/// Number of members for formats that are parsed byte by byte, so that the test is fast without optimization.
const FEWER_MEMBERS: usize = 3;
const LINE_BYTES: u64 = (MEMBER_BYTES * MEMBERS) as u64;

/// Writes a file of `members` times 16 MiB of one letter, compressed, between `start` and `end`.
fn bomb(folder: &Path, name: &str, start: &str, members: usize, end: &str) -> SourceConfig {
    let path = folder.join(name);
    let members = compressed(name, &vec![b'x'; MEMBER_BYTES]).repeat(members);
    let start = compressed(name, start.as_bytes());
    std::fs::write(&path, [start, members, compressed(name, end.as_bytes())].concat()).unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() < 16 << 20);
    SourceConfig::of_files(vec![path.to_str().unwrap().to_string()])
}

/// Compresses `bytes` by the extension of `name`, fast.
fn compressed(name: &str, bytes: &[u8]) -> Vec<u8> {
    match Path::new(name).extension().and_then(|e| e.to_str()) {
        Some("gz") => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        Some("zst") => zstd::encode_all(bytes, 1).unwrap(),
        _ => liblzma::encode_all(bytes, 0).unwrap(),
    }
}

#[test]
fn a_line_of_a_gigabyte_is_measured_and_not_kept_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.txt.gz", "a.txt.zst", "a.txt.xz"] {
        let source = bomb(folder.path(), name, "first\n", MEMBERS, "\nlast\n");
        let limits = Limits { line_bytes: 16 << 20, document_bytes: 1 << 20 };
        let file = &files::find(&[source]).unwrap().files[0];
        let mut lines = Lines::of(file.open().unwrap().0, Arc::clone(&file.path), limits.line_bytes);
        let mut lengths = Vec::new();
        while let Some(line) = lines.advance().unwrap() {
            lengths.push((line.length, line.is_too_long));
        }
        assert_eq!(lengths, [(5, false), (LINE_BYTES, true), (4, false)], "{name}");
        assert!(lines.allocated_bytes() <= 34 << 20, "{name} held {}", lines.allocated_bytes());
    }
}

#[test]
fn a_huge_object_or_field_is_left_out_and_reading_continues() {
    let folder = tempfile::tempdir().unwrap();
    for (name, start, end) in [
        ("a.json.zst", "[{\"text\": \"", "\"}, {\"text\": \"last\"}]"),
        ("a.jsonl.zst", "{\"text\": \"", "\"}\n{\"text\": \"last\"}\n"),
        ("a.csv.zst", "n,text\n1,\"", "\"\n2,last\n"),
        ("a.tsv.zst", "text\n", "\nlast\n"),
    ] {
        let source = bomb(folder.path(), name, start, FEWER_MEMBERS, end);
        let config = DataConfig { sources: vec![source], max_line_bytes: 1 << 20, ..DataConfig::default() };
        let items: Vec<Item> = Corpus::open(&config).unwrap().documents().map(Result::unwrap).collect();
        let [Item::Rejected(bomb), Item::Document(last)] = items.as_slice() else {
            panic!("{name}: {items:?}")
        };
        assert_eq!(
            (bomb.rejection.reason, bomb.excerpt.len(), last.text.as_str()),
            ("line_too_long", 500, "last"),
            "{name}"
        );
        let around = if name.contains("json") { start.trim_start_matches('[').len() as u64 + 2 } else { 0 };
        assert_eq!(bomb.bytes, (MEMBER_BYTES * FEWER_MEMBERS) as u64 + around, "{name}");
    }
}
