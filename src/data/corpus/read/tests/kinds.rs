//! Tests files whose content differs from their name, archives, line ends, and skipped files.

use std::path::Path;

use super::formats::compressed;
use super::*;
use base::fs;
use config::{Format, OnBadRecord};

fn utf16(text: &str) -> Vec<u8> {
    [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect()
}

fn utf32(text: &str) -> Vec<u8> {
    ['\u{feff}'].into_iter().chain(text.chars()).flat_map(|c| u32::from(c).to_le_bytes()).collect()
}

/// Writes an archive of these files.
pub(super) fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Writes a record of a web archive.
pub(super) fn record(kind: &str, content_type: &str, content: &str) -> Vec<u8> {
    format!(
        "WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: http://a.example/{kind}\r\nContent-Type: {content_type}\r\n\
         Content-Length: {}\r\n\r\n{content}\r\n\r\n",
        content.len()
    )
    .into_bytes()
}

#[test]
fn files_are_read_by_content_and_not_by_name() {
    let jsonl = b"{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
    let files: [(&str, Vec<u8>); 11] = [
        ("xz.jsonl", compressed("xz", jsonl)),
        ("zst.jsonl", compressed("zst", jsonl)),
        ("plain.jsonl.gz", jsonl.to_vec()),
        ("gzip.jsonl.zst", compressed("gz", jsonl)),
        ("marked16.jsonl", utf16("{\"text\": \"one\"}\r\n{\"text\": \"two\"}\r\n")),
        ("marked32.csv", utf32("text\none\ntwo\n")),
        ("packed16.csv.gz", compressed("gz", &utf16("text\none\ntwo\n"))),
        ("array.jsonl", b" [{\"text\": \"one\"},\n{\"text\": \"two\"}]".to_vec()),
        ("returns.jsonl", b"{\"text\": \"one\"}\r{\"text\": \"two\"}\r".to_vec()),
        ("marks.jsonl", b"\xef\xbb\xbf{\"text\": \"one\"}\n\xef\xbb\xbf{\"text\": \"two\"}\n".to_vec()),
        (
            "members.jsonl",
            tar(&[("a.jsonl", &jsonl[..16]), ("b/c.jsonl.gz", &compressed("gz", &jsonl[16..]))]),
        ),
    ];
    for (name, bytes) in files {
        let folder = Folder::with(&[(name, &bytes)]);
        let (texts, counts) = read(&folder.config(name, DocumentUnit::File)).unwrap();
        assert_eq!((texts, counts.rejected), (vec!["one".to_string(), "two".to_string()], 0), "{name}");
    }
}

#[test]
fn an_encoding_is_that_of_all_text_but_text_with_a_mark() {
    let text = "K\u{e4}ly: 5 \u{20ac}";
    let old = b"K\xe4ly: 5 \x80";
    for (name, bytes) in [
        ("a.txt", old.to_vec()),
        ("a.txt.gz", compressed("gz", old)),
        ("a.tar", tar(&[("b.txt", old)])),
        ("a.jsonl", b"{\"text\": \"K\xe4ly: 5 \x80\"}\n".to_vec()),
        ("a.json", b"[{\"text\": \"K\xe4ly: 5 \x80\"}]".to_vec()),
        ("a.csv", b"text\nK\xe4ly: 5 \x80\n".to_vec()),
        ("mark8.txt", format!("\u{feff}{text}").into_bytes()),
        ("mark16.txt", utf16(text)),
    ] {
        let folder = Folder::with(&[(name, &bytes)]);
        let config = folder.config_with(name, |source| source.encoding = fs::TextEncoding::named("cp1252"));
        assert_eq!(read(&config).unwrap().0, [text], "{name}");
    }
    let folder = Folder::with(&[("half.txt", b"a\x93")]);
    let half = message(
        &folder,
        &folder.config_with("half.txt", |source| source.encoding = fs::TextEncoding::named("shift_jis")),
    );
    assert!(half.starts_with("half.txt:1: is not UTF-8 text"), "{half}");
}

#[test]
fn unreadable_files_are_refused_with_the_true_reason() {
    let gzip = compressed("gz", b"text");
    let tarball = tar(&[("a.txt", b"text")]);
    let files: [(&str, &[u8], &str); 14] = [
        ("a.txt", b"PK\x03\x04\x14\0\0\0", "a.txt: is a zip archive"),
        (
            "b.jsonl",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n",
            "b.jsonl: is a pointer of git-lfs",
        ),
        ("c.txt", b"/annex/objects/MD5E-s1--1.txt\n", "c.txt: is a pointer of git-annex"),
        ("d.csv", b"<html><body>404</body></html>", "d.csv: is a page of HTML"),
        (
            "e.txt.gz",
            &compressed("gz", &gzip),
            "e.txt.gz: is compressed by gzip inside of another compression",
        ),
        ("f.txt", b"t\0e\0x\0t\0\n\0", "f.txt: is UTF-16 text without a byte-order mark"),
        ("g.parquet", b"\x1f\x8b\x08\0", "g.parquet: is a compressed Parquet file"),
        ("h.parquet", b"PK\x03\x04", "h.parquet: is a zip archive"),
        ("i.txt", b"%PDF-1.7\n", "i.txt: is a PDF document"),
        ("j.tar", &tar(&[("k.tar", &tarball)]), "j.tar:k.tar: is a tar archive"),
        (
            "l.tar.gz",
            &compressed("gz", &tar(&[("m.txt.gz", &gzip)])),
            "l.tar.gz:m.txt.gz: is compressed by gzip inside",
        ),
        ("n.tar", &tar(&[("o.png", b"x"), (".p.txt", b"x")]), "n.tar: holds no member to read: 2 have"),
        (
            "q.warc",
            &record("response", "application/http; msgtype=response", "HTTP/1.1 200\r\n\r\n5\r\nhello\r\n"),
            "q.warc: holds no extracted text; its records are 1 of `response` (application/http)",
        ),
        ("r.txt.zst", b"\x28\xb5\xff\0", "r.txt.zst: is neither text nor what `.zst` says"),
    ];
    for (name, bytes, start) in files {
        let folder = Folder::with(&[(name, bytes)]);
        let found =
            message(&folder, &folder.config_with(name, |source| source.invalid_utf8 = InvalidUtf8::Replace));
        assert!(found.starts_with(start), "{name}: {found}");
    }
    let folder = Folder::with(&[("a.tar", &tarball[..tarball.len() - 1024 - 509])]);
    let cut = message(&folder, &folder.config("a.tar", DocumentUnit::File));
    assert!(
        cut.contains("cannot read `a.tar:a.txt`") && cut.contains("the archive is cut off: 1 bytes"),
        "{cut}"
    );
}

#[test]
fn an_empty_file_of_any_name_is_an_empty_document() {
    let empty = compressed("gz", b"");
    for (name, bytes) in [("a.txt.gz", b"".as_slice()), ("b.txt.gz", &empty)] {
        let folder = Folder::with(&[(name, bytes)]);
        assert_eq!(short(&folder.config(name, DocumentUnit::File)), ["1 empty 0  |"], "{name}");
    }
}

#[test]
fn members_of_archives_are_documents_with_their_numbers() {
    let long = format!("{}/long.txt", "folder".repeat(30));
    let members: [(&str, &[u8]); 6] = [
        ("corpus/part-0.txt", b"one\r\n\r\nparagraph\n"),
        ("corpus/._part-0.txt", b"\0\x05\x16\x07"),
        ("picture.png", b"\x89PNG"),
        (&long, b"two"),
        ("rows.csv", b"text;n\nthree;3\n"),
        ("empty.txt", b""),
    ];
    let mut archive = tar(&members);
    // Another archive after the end of the first.
    archive.extend(tar(&[("last.txt", b"four")]));
    for (name, bytes) in
        [("a.tar", archive.clone()), ("b.txt", archive.clone()), ("c.tgz", compressed("gz", &archive))]
    {
        let folder = Folder::with(&[(name, &bytes)]);
        let all = short(&folder.config(name, DocumentUnit::File));
        let expected = [
            "1 one\n\nparagraph",
            "2 passed_over 4 corpus/._part-0.txt: hidden |corpus/._part-0.txt",
            "3 passed_over 4 picture.png: its extension is none that is read |picture.png",
            "4 two",
            "5 three",
            "6 empty 0  |",
            "7 four",
        ];
        assert_eq!(all, expected, "{name}");
    }
    let folder = Folder::with(&[("a.tar", &tar(&[("x/wiki_00", b"text\n"), ("y", b"\xe4")]))]);
    let config = folder.config_with("a.tar", |source| {
        (source.title_field, source.invalid_utf8) = (Some("name".to_string()), InvalidUtf8::Skip);
    });
    assert!(message(&folder, &config).contains("holds no member to read: 2 have other extensions"));
    let mut config = config;
    config.sources[0].format = Format::Text;
    assert_eq!(short(&config)[0], "1 x/wiki_00\ntext");
    config.sources[0].invalid_utf8 = InvalidUtf8::Fail;
    assert!(
        message(&folder, &config).starts_with("a.tar:y:1: is not UTF-8 text"),
        "{}",
        message(&folder, &config)
    );
}

#[test]
fn a_hostile_archive_is_refused_in_bounded_memory() {
    let mut name = tar::Header::new_gnu();
    name.set_entry_type(tar::EntryType::GNULongName);
    name.set_path("x").unwrap();
    name.set_size(1 << 40);
    name.set_cksum();
    let mut damaged = tar(&[("a.txt", b"text")]);
    damaged[3] ^= 1;
    let mut huge = tar::Header::new_gnu();
    huge.set_path("a.txt").unwrap();
    huge.set_size(u64::MAX);
    huge.set_cksum();
    let cases = [
        (name.as_bytes().to_vec(), "the headers of a member have more than 1048576 bytes"),
        (damaged, "its checksum is wrong"),
        (huge.as_bytes().to_vec(), "the archive is cut off"),
        (tar(&[("a.txt", b"text")])[..700].to_vec(), "the archive is cut off"),
    ];
    for (bytes, reason) in cases {
        let folder = Folder::with(&[("a.tar", &bytes)]);
        let found = message(&folder, &folder.config("a.tar", DocumentUnit::Line));
        assert!(found.contains("a.tar") && found.contains(reason), "{found}");
    }
}

#[test]
fn extracted_texts_of_a_web_archive_are_documents() {
    let info = record("warcinfo", "application/warc-fields", "software: x\r\n");
    let records = [
        info.clone(),
        record("conversion", "text/plain", "First page\nwith two lines"),
        record("metadata", "application/json", "{}"),
        record("conversion", "text/plain", ""),
        record("resource", "text/plain; charset=utf-8", "Ääkköset"),
    ];
    let each: Vec<u8> = records.iter().flat_map(|record| compressed("gz", record)).collect();
    for (name, bytes) in [("a.warc.wet", records.concat()), ("b.txt", each)] {
        let folder = Folder::with(&[(name, &bytes)]);
        let expected = [
            "2 First page\nwith two lines",
            "3 passed_over 2 a record of type `metadata` (application/json) |http://a.example/metadata",
            "4 empty 0  |",
            "5 Ääkköset",
        ];
        assert_eq!(short(&folder.config(name, DocumentUnit::File)), expected, "{name}");
        let titled =
            |field: &str| folder.config_with(name, |source| source.title_field = Some(field.to_string()));
        assert_eq!(
            short(&titled("warc-target-uri"))[0],
            "2 http://a.example/conversion\nFirst page\nwith two lines"
        );
        let missing = message(&folder, &titled("title"));
        assert!(
            missing.contains(":2: field `title` is missing") && missing.contains("`WARC-Target-URI`"),
            "{missing}"
        );
    }
    let whole = records.concat();
    for (bytes, reason) in [
        (whole[..whole.len() - 6].to_vec(), "record 5`, line 1: the archive is cut off: 2 bytes"),
        (whole[..info.len() + 20].to_vec(), ":2: the archive is cut off in the middle of a header"),
        ([info.as_slice(), b"rest"].concat(), ":2: here is no record of a web archive"),
        (b"WARC/1.0\r\nWARC-Type: conversion\r\n\r\n".to_vec(), ":1: a record has no `Content-Length`"),
        ([b"WARC/1.0\r\n".as_slice(), &b"a: b\r\n".repeat(20_000)].concat(), "have more than 65536 bytes"),
    ] {
        let folder = Folder::with(&[("a.wet", &bytes)]);
        let found = message(&folder, &folder.config("a.wet", DocumentUnit::File));
        assert!(found.contains("a.wet") && found.contains(reason), "{found}");
    }
}

#[test]
fn all_line_ends_count_in_every_file_of_a_folder() {
    let mixed =
        (0..50).map(|n| format!("Line {n}{}", ["\n", "\r", "\r\n"][n % 3])).collect::<Vec<_>>().concat();
    let folder = Folder::with(&[
        ("a.txt", fifty_lines("\n").as_bytes()),
        ("b.txt", fifty_lines("\r").as_bytes()),
        ("c.txt", fifty_lines("\r\n").as_bytes()),
        ("d.txt", mixed.as_bytes()),
    ]);
    let (texts, counts) = read(&folder.config("", DocumentUnit::Line)).unwrap();
    assert_eq!((texts.len(), counts.rejected), (200, 0));
    assert!(texts.chunks(50).all(|some| some == &texts[..50]));
}

fn fifty_lines(end: &str) -> String {
    (0..50).map(|n| format!("Line {n}{end}")).collect::<Vec<_>>().concat()
}

#[test]
fn a_line_that_cleaning_makes_blank_ends_a_paragraph() {
    for blank in ["\u{a0}", " \t", "\u{3000}", "\u{200b}", "\u{feff}", "\u{2028}", "\u{ad}", "\r"] {
        let folder =
            Folder::with(&[("a.txt", format!("one\n{blank}\ntwo\n{blank}{blank}\n\nthree").as_bytes())]);
        let texts = read(&folder.config("a.txt", DocumentUnit::Paragraph)).unwrap().0;
        assert_eq!(texts, ["one", "two", "three"], "{}", blank.escape_unicode());
    }
}

#[test]
fn folders_and_patterns_find_the_same_files_and_report_skipped_ones() {
    let folder = Folder::with(&[("a.txt", b"a"), ("._a.txt", b"no"), ("notes.md", b"no")]);
    let path = folder.0.path();
    std::fs::create_dir_all(path.join("real/.git")).unwrap();
    std::fs::create_dir_all(path.join("in")).unwrap();
    for (name, text) in [("real/c.txt", "c"), ("real/.git/d.txt", "no"), ("in/b.txt", "b")] {
        std::fs::write(path.join(name), text).unwrap();
    }
    fs::link(&path.join("real"), &path.join("in/sub")).unwrap();
    fs::link(path, &path.join("in/loop")).unwrap();
    let texts = |pattern: &str| read(&folder.config(pattern, DocumentUnit::File)).unwrap().0;
    assert_eq!(texts("in"), ["b", "a", "c"]);
    assert_eq!(texts("in/*.txt"), ["b"]);
    assert_eq!(texts("*.txt"), ["a"]);
    assert_eq!(texts("real/**/*.txt"), ["c"]);
    assert_eq!(texts("._*.txt"), ["no"], "a pattern with the dot");
    assert_eq!(texts("._a.txt"), ["no"], "named");
    let notes = Corpus::open(&folder.config("in", DocumentUnit::File)).unwrap().notes().to_vec();
    let [note] = notes.as_slice() else { panic!("{notes:?}") };
    let (counts, example) = note.split_once(" (such as `").unwrap();
    assert_eq!(
        counts,
        "source `in`: passed over in its folders: hidden: 2, files with extensions that are not read: 1, links to \
         folders that are read already: 1"
    );
    assert!(example.contains(&path.join("in").display().to_string()), "{note}");
}

#[test]
fn a_file_name_that_is_not_utf8_is_reported() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::with(&[("a.txt", b"a")]);
    let name = std::ffi::OsStr::from_bytes(b"b\xff.txt");
    if std::fs::write(folder.0.path().join(Path::new(name)), "b").is_err() {
        return;
    }
    let found = message(&folder, &folder.config("", DocumentUnit::File));
    assert!(found.starts_with("b\\xff.txt: the name of this file is not UTF-8 text"), "{found}");
}

#[test]
fn both_tags_may_share_a_line_with_the_text() {
    let text = b"<doc id=\"1\">one</doc>\n<doc>two</doc><doc id=\"3\">three</doc>\n<doc id=\"4\">\nfour\n\
                 is <doc> a tag\nend</doc>\n<doc id=\"5\">five\nand more\n</doc>\n<doc></doc>\n";
    let folder = Folder::with(&[("a.txt", text)]);
    let all = short(&folder.config("a.txt", DocumentUnit::DocTag));
    let expected =
        ["1 one", "2 two", "2 three", "4 four\nis <doc> a tag\nend", "7 five\nand more", "10 empty 0  |"];
    assert_eq!(all, expected);
}

#[test]
fn a_bad_record_is_named_or_left_out_and_counted() {
    let open_quote = "id,text\n0,zero\n1,\"one\n2,two\n3,\"three\n4,four\n";
    let files: [(&str, &str, &str, &[&str]); 6] = [
        (
            "a.jsonl",
            "{\"text\": \"one\"}\n{\"text\": \"tw",
            "a.jsonl:2:12: is not a JSON object",
            &["1 one", "2 bad_record 12 is not a JSON object: EOF while parsing a string |{\"text\": \"tw"],
        ),
        (
            "b.jsonl",
            "{\"texts\": \"one\"}\n{\"text\": \"two\"}",
            "b.jsonl:1:1: field `text` is missing",
            &["1 bad_record 16 field `text` is missing |{\"texts\": \"one\"}", "2 two"],
        ),
        (
            "c.csv",
            "id,text\n1\n2,two\n",
            "c.csv:2: 1 field is here",
            &["2 bad_record 0 1 field is here, but 2 named in the first line |", "3 two"],
        ),
        (
            "d.csv",
            open_quote,
            "d.csv:3: a quote opened in this row ends in line 5, in the middle of a text",
            &[
                "2 zero",
                "3 bad_record 17 a quote opened in this row ends in line 5, in the middle of a text |one\n2,two\n3,three",
                "6 four",
            ],
        ),
        (
            "e.csv",
            "id,text\n1,one\n2,\"two\n",
            "e.csv:3: a quote in this row is never closed",
            &["2 one", "3 bad_record 4 a quote in this row is never closed |two\n"],
        ),
        (
            "f.json",
            "[{\"text\": \"one\"}, {\"text\": ",
            "f.json:1:19: the file ends in the middle of an object",
            &["1 one", "1 bad_record 9 the file ends in the middle of an object |{\"text\": "],
        ),
    ];
    for (name, text, start, expected) in files {
        let folder = Folder::with(&[(name, text.as_bytes())]);
        let failed = message(&folder, &folder.config(name, DocumentUnit::File));
        assert!(failed.starts_with(start), "{name}: {failed}");
        let skipped = short(&folder.config_with(name, |source| source.on_bad_record = OnBadRecord::Skip));
        assert_eq!(skipped, expected, "{name}");
    }
}

#[test]
fn nan_does_not_stop_a_row() {
    let text =
        b"{\"text\": \"one\", \"score\": NaN}\n{\"a\": [-Infinity], \"text\": \"NaN\"}\n{\"text\": NaN}\n";
    let folder = Folder::with(&[("a.jsonl", text)]);
    assert_eq!(short(&folder.config("a.jsonl", DocumentUnit::File)), ["1 one", "2 NaN", "3 empty 0  |"]);
}

#[test]
fn hashes_equal_those_of_the_whole_files() {
    let gzip = [compressed("gz", b"two"), vec![0; 300]].concat();
    let folder =
        Folder::with(&[("a.txt", b"one".as_slice()), ("b.txt", &gzip), ("c.tar", &tar(&[("c.txt", b"c")]))]);
    let config = folder.config("*", DocumentUnit::File);
    let corpus = Corpus::open(&config).unwrap();
    let mut documents = corpus.documents();
    assert_eq!(documents.by_ref().map(Result::unwrap).count(), 3);
    let expected: Vec<Option<String>> =
        corpus.files().iter().map(|file| Some(fs::content_hash(&file.path).unwrap())).collect();
    assert_eq!(documents.content_hashes(), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn damaged_archives_never_panic(at: usize, byte: u8, end: usize, is_tar: bool, unit in 0..4usize) {
        let mut bytes = if is_tar {
            tar(&[("a.txt", b"one\n\ntwo"), ("b.jsonl", b"{\"text\": \"three\"}\n"), ("c.csv", b"text\nfour\n")])
        } else {
            [record("warcinfo", "x", "y"), record("conversion", "text/plain", "one\n\ntwo"), record("response", "x", "")].concat()
        };
        let length = bytes.len();
        bytes[at % length] = byte;
        check(&bytes, unit, "a.txt", 1)?;
        check(&bytes[..end % length], unit, "a.txt", 0)?;
    }
}
