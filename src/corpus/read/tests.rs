//! Files written to a temporary folder, read back as documents.

use std::io::Write;

use proptest::prelude::*;

use super::*;
use crate::config::DocumentUnit;
use crate::config::SourceConfig;

struct Folder(tempfile::TempDir);

impl Folder {
    fn with(files: &[(&str, &[u8])]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        Self(folder)
    }

    fn config(&self, pattern: &str, document: DocumentUnit) -> DataConfig {
        let files = vec![self.0.path().join(pattern).to_str().unwrap().to_string()];
        let source = SourceConfig { document, ..SourceConfig::of_files(files) };
        DataConfig { sources: vec![source], ..DataConfig::default() }
    }
}

/// What was read beside the texts.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    documents: u64,
    rejected: u64,
    cut: u64,
}

fn read(config: &DataConfig) -> Result<(Vec<String>, Counts)> {
    let corpus = Corpus::open(config)?;
    let mut items = corpus.documents();
    let (mut texts, mut counts) = (Vec::new(), Counts::default());
    for item in items.by_ref() {
        match item? {
            Item::Rejected(_) => counts.rejected += 1,
            Item::Document(document) => {
                counts.documents += 1;
                counts.cut += u64::from(document.was_cut);
                texts.push(document.text);
            }
        }
    }
    assert_eq!(items.position_bytes(), corpus.size_bytes());
    Ok((texts, counts))
}

#[test]
fn a_text_file_is_one_document_or_paragraphs_or_lines() {
    let folder = Folder::with(&[("a.txt", b"\xef\xbb\xbf\r\nChapter I\r\n\r\nIt was late.\r\nShe slept.\r\n \r\n\r\n")]);
    let texts = |unit| read(&folder.config("a.txt", unit)).unwrap();
    assert_eq!(texts(DocumentUnit::File).0, ["Chapter I\n\nIt was late.\nShe slept.\n "]);
    assert_eq!(
        texts(DocumentUnit::Paragraph),
        (vec!["Chapter I".into(), "It was late.\nShe slept.".into()], Counts { documents: 2, ..Counts::default() })
    );
    let (lines, counts) = texts(DocumentUnit::Line);
    assert_eq!(lines, ["Chapter I", "It was late.", "She slept."]);
    assert_eq!(counts.rejected, 4);
}

#[test]
fn patterns_match_in_sorted_order_whatever_the_compression() {
    let line = |text: &str| format!("{{\"id\": 1, \"text\": \"{text}\"}}\n\n").into_bytes();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&line("two")).unwrap();
    let folder = Folder::with(&[
        ("c.jsonl", &line("three")),
        ("b.jsonl.gz", &gzip.finish().unwrap()),
        ("a.jsonl.zst", &zstd::encode_all(line("one").as_slice(), 3).unwrap()),
    ]);
    assert_eq!(read(&folder.config("*.jsonl*", DocumentUnit::File)).unwrap().0, ["one", "two", "three"]);
}

#[test]
fn errors_name_file_and_line() {
    let folder = Folder::with(&[
        ("a.jsonl", b"{\"text\": \"fine\"}\n{\"title\": \"no text\"}\n"),
        ("b.jsonl", b"{\"text\": \"fi"),
        ("c.txt.gz", b"\x1f\x8b\x08 this is no gzip file"),
    ]);
    let message = |name| format!("{:#}", read(&folder.config(name, DocumentUnit::File)).unwrap_err());
    assert!(message("a.jsonl").ends_with("a.jsonl:2: field `text` is missing"), "{}", message("a.jsonl"));
    assert!(message("b.jsonl").contains("b.jsonl:1:12: is not a JSON object"), "{}", message("b.jsonl"));
    assert!(message("c.txt.gz").contains("c.txt.gz`, line 1"), "{}", message("c.txt.gz"));
    assert!(message("nothing-*.txt").contains("no file matches `"), "{}", message("nothing-*.txt"));
}

#[test]
fn long_documents_are_cut_at_white_space_and_nothing_is_lost() {
    let text = "Käki kukkui kuusikossa, kaiku vastasi kaukaa.\n".repeat(50);
    let folder = Folder::with(&[("a.txt", text.as_bytes())]);
    let config = DataConfig { max_document_bytes: 100, ..folder.config("a.txt", DocumentUnit::File) };
    let (pieces, counts) = read(&config).unwrap();
    assert_eq!(pieces.concat(), text.trim_end());
    assert!(pieces.iter().all(|piece| piece.len() <= 100));
    assert!(pieces[1..].iter().all(|piece| piece.starts_with([' ', '\n'])));
    assert_eq!((counts.cut, counts.documents), (1, pieces.len() as u64));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), unit in 0..3usize, name in 0..5usize) {
        let name = ["a.txt", "a.jsonl", "a.txt.gz", "a.jsonl.zst", "a.txt.bz2"][name];
        let unit = [DocumentUnit::File, DocumentUnit::Paragraph, DocumentUnit::Line][unit];
        let folder = Folder::with(&[(name, &bytes)]);
        let config = DataConfig { max_document_bytes: 16, ..folder.config(name, unit) };
        if let Err(error) = read(&config) {
            prop_assert!(format!("{error:#}").contains(name), "{error:#}");
        }
    }

    #[test]
    fn text_of_any_shape_keeps_all_but_white_space(text in "[ a-zäö\u{3000}😀\r\n]{0,200}", limit in 1u64..40, unit in 0..3usize) {
        let unit = [DocumentUnit::File, DocumentUnit::Paragraph, DocumentUnit::Line][unit];
        let folder = Folder::with(&[("a.txt", text.as_bytes())]);
        let config = DataConfig { max_document_bytes: limit, ..folder.config("a.txt", unit) };
        let (texts, counts) = read(&config).unwrap();
        let visible = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        prop_assert_eq!(visible(&texts.concat()), visible(&text));
        prop_assert!(texts.iter().all(|piece| piece.len() as u64 <= limit.max(4)));
        prop_assert_eq!(counts.documents, texts.len() as u64);
    }
}
