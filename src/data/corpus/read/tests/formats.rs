//! Tests every format with every compression, the items left out of each, and the text of every error.

use std::io::Write;

use crate::corpus::Corpus;
use crate::corpus::read::tests::{Folder, message, read, short};
use config::{DataConfig, DocumentUnit, Format, InvalidUtf8, SourceConfig};

pub(super) fn compressed(extension: &str, bytes: &[u8]) -> Vec<u8> {
    match extension {
        "gz" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        "bz2" => {
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        "zst" => zstd::encode_all(bytes, 3).unwrap(),
        "xz" => liblzma::encode_all(bytes, 6).unwrap(),
        _ => bytes.to_vec(),
    }
}

#[test]
fn every_format_is_read_with_every_compression() {
    let files = [
        ("a.txt", "Käki kukkui\nkuusikossa\n\nkaiku \"vastasi\"\n"),
        (
            "a.jsonl",
            "{\"text\": \"Käki kukkui\\nkuusikossa\"}\n\n{\"n\": {\"text\": 1}, \"text\": \"kaiku \\\"vastasi\\\"\"}",
        ),
        (
            "a.json",
            "\u{feff}[\n{\"text\": \"Käki kukkui\\nkuusikossa\"},{\"n\": [{}], \"text\": \"kaiku \\\"vastasi\\\"\"}\n]\n",
        ),
        ("b.json", "{\"text\": \"Käki kukkui\\nkuusikossa\"}\n{\"text\": \"kaiku \\\"vastasi\\\"\"}"),
        (
            "a.csv",
            "\u{feff}n, text\r\n1,\"Käki kukkui\r\nkuusikossa\"\r\n\r\n2,\"kaiku \"\"vastasi\"\"\"\r\n",
        ),
    ];
    for (name, content) in files {
        for extension in ["", ".gz", ".bz2", ".zst", ".xz"] {
            let full = format!("{name}{extension}");
            let folder =
                Folder::with(&[(&full, &compressed(extension.trim_start_matches('.'), content.as_bytes()))]);
            let (texts, _) = read(&folder.config(&full, DocumentUnit::Paragraph)).unwrap();
            assert_eq!(texts, ["Käki kukkui\nkuusikossa", "kaiku \"vastasi\""], "{full}");
        }
    }
    let folder = Folder::with(&[("a.tsv", "text\tn\r\nsay \"no\t1\r\"\t2".as_bytes())]);
    assert_eq!(read(&folder.config("a.tsv", DocumentUnit::File)).unwrap().0, ["say \"no", "\""]);
}

#[test]
fn documents_between_tags() {
    let text = b"<doc id=\"1\" url=\"u\" title=\"a > b\">\nA > b\n\nText.\n\n</doc>\n\nstray\n<doc id=\"2\">\n\n</doc>\n<doc>\nOpen\n<doc id=\"4\">\nLast";
    let folder = Folder::with(&[("wiki_00", text), ("none.txt", b"\n\nText.\n")]);
    let all = short(&folder.config("wiki_00", DocumentUnit::DocTag));
    assert_eq!(
        all,
        [
            "2 A > b\n\nText.",
            "8 outside_doc_tag 5 behind `</doc>` |stray",
            "9 empty 0  |",
            "13 Open",
            "15 Last"
        ]
    );
    insta::assert_snapshot!(message(&folder, &folder.config("none.txt", DocumentUnit::DocTag)), @r"
    none.txt:3: here is text before the first line `<doc ...>`
      hint: set `document` to `file`, `paragraph` or `line` if the file has no such lines
    ");
}

#[test]
fn long_lines_are_left_out_and_their_documents_continue() {
    let text = format!("one\n{}\ntwo\n\nthree\n", "ä".repeat(600));
    let folder = Folder::with(&[("a.txt", text.as_bytes())]);
    let config = |unit| DataConfig { max_line_bytes: 1024, ..folder.config("a.txt", unit) };
    let long = format!("2 line_too_long 1200 1200 bytes, at most 1024 are read |{}", "ä".repeat(250));
    assert_eq!(short(&config(DocumentUnit::Paragraph)), [&long, "1 one\ntwo", "5 three"]);
    assert_eq!(short(&config(DocumentUnit::File)), [&long, "1 one\ntwo\n\nthree"]);
    assert_eq!(short(&config(DocumentUnit::Line)), ["1 one", &long, "3 two", "4 empty 0  |", "5 three"]);
}

#[test]
fn bytes_that_are_not_utf8() {
    let folder = Folder::with(&[
        ("a.txt", b"\xef\xbb\xbfone\nt\xe4h\xf6\nthree\n\nfour\n"),
        ("a.jsonl", b"{\"text\": \"one\"}\n{\"text\": \"t\xe4h\"}\n{\"text\": \"\\ud83d!\"}\n"),
        ("a.json", b"[{\"text\": \"one\"},\n{\"text\": \"t\xe4h\"}]"),
        ("a.csv", b"text,n\none,\xff\nt\xe4h,2\n"),
    ]);
    let config = |name: &str, unit, policy| {
        folder.config_with(name, |source| (source.document, source.invalid_utf8) = (unit, policy))
    };
    let text = |unit, policy| short(&config("a.txt", unit, policy));
    assert_eq!(
        text(DocumentUnit::Paragraph, InvalidUtf8::Skip),
        ["1 invalid_utf8 14 byte 8 of the file |one\nt\u{fffd}h\u{fffd}", "5 four"]
    );
    assert_eq!(
        text(DocumentUnit::File, InvalidUtf8::Skip),
        ["2 invalid_utf8 4 byte 8 of the file |t\u{fffd}h\u{fffd}", "1 one\nthree\n\nfour"]
    );
    assert_eq!(
        text(DocumentUnit::Line, InvalidUtf8::Skip)[1],
        "2 invalid_utf8 4 byte 8 of the file |t\u{fffd}h\u{fffd}"
    );
    let (texts, counts) = read(&config("a.txt", DocumentUnit::Paragraph, InvalidUtf8::Replace)).unwrap();
    assert_eq!((texts[0].as_str(), counts.replaced), ("one\nt\u{fffd}h\u{fffd}\nthree", 2));
    let skip = |name: &str| short(&config(name, DocumentUnit::File, InvalidUtf8::Skip));
    assert_eq!(skip("a.jsonl")[1], "2 invalid_utf8 15 byte 27 of the file |{\"text\": \"t\u{fffd}h\"}");
    assert!(
        skip("a.jsonl")[2]
            .starts_with("3 invalid_utf8 4 byte 0 of field `text`, which has half of a surrogate pair |")
    );
    assert_eq!(skip("a.json")[1], "2 invalid_utf8 15 byte 29 of the file |{\"text\": \"t\u{fffd}h\"}");
    assert_eq!(skip("a.csv"), ["2 one", "3 invalid_utf8 3 byte 1 of column `text` |t\u{fffd}h"]);
    let (texts, counts) = read(&config("*.[jc]s*", DocumentUnit::File, InvalidUtf8::Replace)).unwrap();
    assert_eq!((texts.len(), counts.replaced >= 4), (7, true));
    let fail = |name: &str| message(&folder, &config(name, DocumentUnit::File, InvalidUtf8::Fail));
    let plain = fail("a.txt");
    assert!(
        plain
            .starts_with("a.txt:2: is not UTF-8 text (byte 8 of the file)\n  hint: name its true encoding, ")
    );
    assert!(plain.contains("`iconv -f latin1 -t utf-8`"), "{plain}");
    assert!(plain.ends_with(", or set `invalid_utf8` to `replace` or `skip`"), "{plain}");
    assert!(fail("a.jsonl").starts_with("a.jsonl:2: is not UTF-8 text (byte 27 of the file)"));
    assert!(fail("a.csv").starts_with("a.csv:3: is not UTF-8 text (byte 1 of column `text`)"));
}

#[test]
fn titles_come_first_and_null_is_empty() {
    let folder = Folder::with(&[
        (
            "a.jsonl",
            b"{\"title\": \"T\", \"text\": \"a\"}\n{\"title\": null, \"text\": \"b\"}\n{\"title\": \"T\", \"text\": null}\n".as_slice(),
        ),
        ("a.json", b"[{\"title\": \"T\", \"text\": \"a\"}, {\"text\": \"b\", \"title\": \" \"}]"),
        ("a.csv", b"text,title\na,T\nb,\n,T\n"),
    ]);
    let cases: [(&str, &[&str]); 3] = [
        ("a.jsonl", &["1 T\na", "2 b", "3 empty 0  |"]),
        ("a.json", &["1 T\na", "1 b"]),
        ("a.csv", &["2 T\na", "3 b", "4 empty 0  |"]),
    ];
    for (name, expected) in cases {
        let config = folder.config_with(name, |source| source.title_field = Some("title".to_string()));
        assert_eq!(short(&config), expected, "{name}");
    }
}

#[test]
fn errors_name_file_and_place() {
    let folder = Folder::with(&[
        ("a.jsonl", b"{\"text\": \"fine\"}\n  {\"title\": \"no text\", \"body\": 1}\n".as_slice()),
        ("b.jsonl", b"{\"text\": \"fi"),
        ("c.txt.gz", b"\x1f\x8b\x08 this is no gzip file"),
        ("d.jsonl", b"{\"text\": \"fine\"}\n{\"text\": \"one\", \"text\": \"two\"}\n"),
        ("a.json", b"[{\"text\": \"fine\"},\n {\"text\": \"fine\"}\n 7]"),
        ("f.json", b"[{\"text\": \"fine\"},\n {\"text\": \"one\",\n  \"text\": \"two\"}]"),
        ("b.json", b"[{\"text\": \"fine\"},\n {\"text\": \"fi"),
        ("c.json", b"[{\"text\": \"fine\"},\n {\"text\":\n  3 4}]"),
        ("d.json", b"{\"data\": [{\"text\": \"fine\"}]}"),
        ("e.json", b"[{\"text\": \"fine\"}"),
        ("a.csv", b"id,body\n1,2\n"),
        ("b.csv", b"id,text\n1,2\n1,2,3\n"),
        ("c.csv", b"id,text\n1,2\n3,\"never\nclosed\n"),
        ("d.csv", b""),
        ("e.csv", b"text,text\na,b\n"),
    ]);
    insta::assert_snapshot!(error_of(&folder, "a.jsonl"), @r"
    a.jsonl:2:1: field `text` is missing
      hint: set `field` to one of the fields: `title`, `body`
    ");
    insta::assert_snapshot!(error_of(&folder, "b.jsonl"), @"
    b.jsonl:1:12: is not a JSON object: EOF while parsing a string
      hint: in its source, `on_bad_record: skip` leaves such records out and counts them
    ");
    insta::assert_snapshot!(error_of(&folder, "d.jsonl"), @"
    d.jsonl:2:22: is not a JSON object: field `text` is there twice
      hint: in its source, `on_bad_record: skip` leaves such records out and counts them
    ");
    insta::assert_snapshot!(error_of(&folder, "f.json"), @"
    f.json:3:8: is not a JSON object: field `text` is there twice
      hint: in its source, `on_bad_record: skip` leaves such records out and counts them
    ");
    assert!(
        error_of(&folder, "c.txt.gz").starts_with("cannot read `c.txt.gz`: "),
        "{}",
        error_of(&folder, "c.txt.gz")
    );
    insta::assert_snapshot!(error_of(&folder, "a.json"), @"a.json:3:2: here is `7` where `,` or `]` is wanted");
    insta::assert_snapshot!(error_of(&folder, "b.json"), @r"
    b.json:2:2: the file ends in the middle of an object
      hint: is the file whole? `on_bad_record: skip` leaves the object out
    ");
    insta::assert_snapshot!(error_of(&folder, "c.json"), @"
    c.json:3:3: is not a JSON object: invalid type: integer `3`, expected a string
      hint: in its source, `on_bad_record: skip` leaves such records out and counts them
    ");
    insta::assert_snapshot!(error_of(&folder, "d.json"), @r"
    d.json:1:1: field `text` is missing
      hint: set `field` to one of the fields: `data`
    ");
    insta::assert_snapshot!(error_of(&folder, "e.json"), @"e.json:1:18: the file ends where `,` or `]` is wanted");
    insta::assert_snapshot!(error_of(&folder, "a.csv"), @r"
    a.csv:1: column `text` is missing
      hint: set `field` to one of the columns: `id`, `body`
    ");
    insta::assert_snapshot!(error_of(&folder, "b.csv"), @r"
    b.csv:3: 3 fields are here, but 2 named in the first line
      hint: look for a quote left open, or a separator inside a text that is not quoted
    ");
    insta::assert_snapshot!(error_of(&folder, "c.csv"), @r"
    c.csv:3: a quote in this row is never closed
      hint: double a quote that belongs to the text
    ");
    insta::assert_snapshot!(error_of(&folder, "d.csv"), @"d.csv:1: is empty, a line with the names of the columns is wanted");
    insta::assert_snapshot!(error_of(&folder, "e.csv"), @"e.csv:1: column `text` is there twice");
    assert!(
        error_of(&folder, "nothing-*.txt").contains("no file matches `"),
        "{}",
        error_of(&folder, "nothing-*.txt")
    );
}

fn error_of(folder: &Folder, name: &str) -> String {
    message(folder, &folder.config(name, DocumentUnit::File))
}

#[test]
fn folders_are_read_with_all_below_them() {
    let folder = Folder::with(&[
        ("b.txt", b"b"),
        ("a.jsonl", b"{\"text\": \"a\"}"),
        (".hidden.txt", b"no"),
        ("README.md", b"no"),
    ]);
    std::fs::create_dir_all(folder.0.path().join("c/d")).unwrap();
    std::fs::create_dir_all(folder.0.path().join("images")).unwrap();
    std::fs::create_dir_all(folder.0.path().join(".git")).unwrap();
    for name in ["c/d/z.txt", "c/wiki_00", ".git/x.txt", "images/a.png"] {
        std::fs::write(folder.0.path().join(name), name).unwrap();
    }
    std::os::unix::fs::symlink(folder.0.path(), folder.0.path().join("c/loop")).unwrap();
    for (format, expected) in
        [(Format::Auto, ["a", "b", "c/d/z.txt"]), (Format::Text, ["b", "c/d/z.txt", "c/wiki_00"])]
    {
        let config = folder.config_with("", |source| source.format = format);
        assert_eq!(read(&config).unwrap().0, expected);
    }
    insta::assert_snapshot!(message(&folder, &folder.config("images", DocumentUnit::File)), @r"
    data.sources: folder `images` holds no file to read: the one file in it has another extension
      hint: of a folder, .txt .text .jsonl .ndjson .json .csv .tsv .parquet .tar .warc .wet are read, also .gz .zst .bz2 .xz; for others write a pattern
    ");
}

#[test]
fn a_file_in_two_entries_is_read_once_and_names_of_sources_are_unique() {
    let folder = Folder::with(&[("a.txt", b"a"), ("b.txt", b"b")]);
    let mut source =
        SourceConfig::of_files(vec![folder.path("b.txt"), folder.path("*.txt"), folder.path("./a.txt")]);
    let mut sources = vec![source.clone()];
    source.files.remove(0);
    sources.extend([source.clone(), source.clone()]);
    sources[2].name = Some("b".to_string());
    let config = DataConfig { sources, ..DataConfig::default() };
    assert_eq!(read(&config).unwrap().0, ["b", "a", "a", "b", "a", "b"]);
    let names = Corpus::open(&config).unwrap().source_names().to_vec();
    let folder_name =
        folder.0.path().file_name().unwrap().to_str().unwrap().split('.').next_back().unwrap_or_default();
    assert_eq!((names[0].as_str(), names[2].as_str()), ("b-2", "b"), "{names:?} {folder_name}");
}

#[test]
fn standard_input_is_read_once_and_never_as_parquet() {
    let corpus = open(&["-"], Format::Jsonl).unwrap();
    assert!(corpus.files()[0].is_standard_input());
    assert_eq!((corpus.size_bytes(), corpus.source_names()), (0, ["stdin".to_string()].as_slice()));
    insta::assert_snapshot!(open(&["-", "-"], Format::Auto).unwrap_err(), @r"
    data.sources: standard input (`-`) is named twice, and can be read only once
      hint: name it once, or write it to a file
    ");
    assert!(
        open(&["-"], Format::Parquet)
            .unwrap_err()
            .to_string()
            .contains("Parquet cannot be read from standard input")
    );
}

fn open(files: &[&str], format: Format) -> anyhow::Result<Corpus> {
    let files = files.iter().map(|file| (*file).to_string()).collect();
    let source = SourceConfig { format, ..SourceConfig::of_files(files) };
    Corpus::open(&DataConfig { sources: vec![source], ..DataConfig::default() })
}

#[test]
fn skipping_too_many_items_is_an_error() {
    let folder = Folder::with(&[("a.txt", b"a\nb\n")]);
    let corpus = Corpus::open(&folder.config("a.txt", DocumentUnit::Line)).unwrap();
    let mut documents = corpus.documents();
    documents.skip_items(2).unwrap();
    assert!(documents.next().is_none());
    insta::assert_snapshot!(corpus.documents().skip_items(3).unwrap_err(), @r"
    the corpus holds 2 documents, 3 were to be skipped
      hint: its files have changed since they were read before
    ");
}
