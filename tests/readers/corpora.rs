//! Corpora: text, JSON and tables, plain and in every form of compression.

use std::path::Path;

use mlmtrain::config::DataConfig;
use mlmtrain::corpus::{Corpus, Item, Judge};
use serde_json::{Value, json};

use super::{Input, Outcome, compressed};

const TARGET: &str = "corpus";

/// Documents of each corpus.
pub(super) const DOCUMENTS: u64 = 24;

pub(super) fn all(folder: &Path) -> Vec<Input> {
    let mut inputs = Vec::new();
    for (name, source, text) in plain() {
        let bytes = text.into_bytes();
        inputs.push(corpus(folder, name, &source, bytes.clone()));
        for (extension, compress) in compressed::ALL {
            let packed = corpus(folder, &format!("{name}{extension}"), &source, compress(&bytes));
            inputs.push(Input { inside: Some((bytes.clone(), compress)), ..packed });
        }
    }
    for (name, source, bytes) in archives() {
        inputs.push(corpus(folder, name, &source, bytes.clone()));
        let packed = corpus(folder, &format!("{name}.gz"), &source, compressed::gzip(&bytes));
        inputs.push(Input { inside: Some((bytes, compressed::gzip)), ..packed });
    }
    inputs.push(judged(folder));
    inputs
}

pub(super) fn texts() -> Vec<String> {
    let text =
        |n| format!("Document {n} begins here, äiti \u{1f98a} \"quoted\", and goes on for {} words.", n * 37);
    (0..DOCUMENTS).map(text).collect()
}

/// File name, what the configuration says of the source besides its files, and content.
pub(super) fn plain() -> Vec<(&'static str, Value, String)> {
    let texts = texts();
    let objects: Vec<_> =
        texts.iter().enumerate().map(|(n, text)| json!({"id": n, "text": text, "score": 0.5})).collect();
    let lines: Vec<String> = objects.iter().map(ToString::to_string).collect();
    let tagged: Vec<String> =
        texts.iter().map(|text| format!("<doc id=\"1\" title=\"a\">\n{text}\n</doc>\n")).collect();
    let quoted = |text: &String| format!("\"{}\"", text.replace('"', "\"\""));
    let columns = |separator: &str| {
        let rows = texts.iter().enumerate().map(|(n, text)| format!("{n}{separator}{}\n", quoted(text)));
        format!("id{separator}text\n") + &rows.collect::<String>()
    };
    vec![
        ("lines.txt", json!({"document": "line"}), texts.join("\n")),
        ("paragraphs.txt", json!({"document": "paragraph"}), texts.join("\n\n")),
        ("tags.txt", json!({"document": "doc_tag"}), tagged.concat()),
        ("corpus.jsonl", json!({}), lines.join("\n")),
        ("array.json", json!({}), format!("[{}]", lines.join(",\n"))),
        ("corpus.csv", json!({}), columns(",")),
        ("corpus.tsv", json!({}), columns("\t")),
    ]
}

/// The same texts in members and records.
fn archives() -> Vec<(&'static str, Value, Vec<u8>)> {
    let texts = texts();
    let (lines, others) = texts.split_at(8);
    let object = |text: &String| format!("{}\n", json!({"text": text}));
    let objects: String = others.iter().map(object).collect();
    let members = [("a/lines.txt", lines.join("\n")), (".hidden", "no".to_string()), ("rows.jsonl", objects)];
    let tar = members.iter().flat_map(|(name, content)| member(name, content.as_bytes())).chain([0; 1024]);
    let record = |kind: &str, text: &str| {
        let length = text.len();
        format!(
            "WARC/1.0\r\nWARC-Type: {kind}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{text}\r\n\r\n"
        )
    };
    let records: String = texts.iter().map(|text| record("conversion", text)).collect();
    let warc = record("warcinfo", "software: x\r\n") + &record("metadata", "{}") + &records;
    vec![
        ("members.tar", json!({"document": "line"}), tar.collect()),
        ("records.warc.wet", json!({}), warc.into_bytes()),
    ]
}

/// A member of a tar archive.
fn member(name: &str, content: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    header[148..156].copy_from_slice(b"        ");
    header[156] = b'0';
    header[257..263].copy_from_slice(b"ustar\0");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let padding = vec![0; content.len().next_multiple_of(512) - content.len()];
    [header, content.to_vec(), padding].concat()
}

/// A configuration of one source.
pub(super) fn config(path: &Path, source: &Value) -> DataConfig {
    let mut source = source.clone();
    source["files"] = json!([path]);
    // Otherwise most damage would end at the first byte that is no UTF-8.
    source["invalid_utf8"] = json!("replace");
    serde_json::from_value(json!({"sources": [source]})).unwrap()
}

pub(super) fn corpus(folder: &Path, name: &str, source: &Value, bytes: Vec<u8>) -> Input {
    let path = folder.join(name).join(name);
    let config = config(&path, source);
    let read = move |_: &Path| -> Outcome {
        let mut documents = 0;
        for item in Corpus::open(&config)?.documents() {
            documents += u64::from(matches!(item?, Item::Document(_)));
        }
        Ok(documents)
    };
    Input::new(TARGET, name, path, bytes, read).giving(DOCUMENTS)
}

/// A page of HTML that is cleaned and asked by every filter.
fn judged(folder: &Path) -> Input {
    let path = folder.join("page.txt").join("page.txt");
    let config = DataConfig {
        cleaning: serde_json::from_value(json!({"html_tags": true})).unwrap(),
        filters: serde_json::from_value(json!({
            "markup": {"enabled": true, "max_share": 1.0},
            "lines": {"urls": true, "boilerplate": true, "patterns": ["share*this", "*cookies*"]},
            "c4": {"enabled": true, "min_sentences": 1},
            "length": {"min_words": 1},
            "gopher": {"enabled": true},
            "repetition": {"enabled": true},
            "language": {"expected": ["eng"]},
        }))
        .unwrap(),
        ..config(&path, &json!({"document": "file"}))
    };
    let judge = Judge::new(&config).unwrap();
    let read = move |_: &Path| -> Outcome {
        let mut documents = 0;
        for item in Corpus::open(&config)?.documents() {
            if let Item::Document(document) = item? {
                judge.judge(&document.text);
                documents += 1;
            }
        }
        Ok(documents)
    };
    let page = "<!doctype html><html><head><title>A page</title><style>p { color: red }</style></head>\n\
                <body><!-- a remark --><p class=\"x\">The old house &amp; the r&#xed;ver &amp;auml; stood \
                there for many years.[1]</p>\n<ul><li>share this</li><li>https://example.org/a</li></ul>\n\
                <script>if (a < b) { document.write('<p>') }</script><br/>It was said that the wind \
                came over the hills\u{200b}\u{ad} and sang.\tNobody knew why.</body></html>\n";
    Input::new(TARGET, "page.txt", folder.join("page.txt").join("page.txt"), page.into(), read)
}
