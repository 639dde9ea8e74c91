//! Writes files to a temporary folder and reads them back as documents.

mod bombs;
mod formats;
mod kinds;
mod real;

use std::io::Write;

use proptest::prelude::*;

use super::*;
use crate::corpus::Rejected;
use config::{DocumentUnit, InvalidUtf8, SourceConfig};

pub(super) struct Folder(pub(super) tempfile::TempDir);

impl Folder {
    pub(super) fn with(files: &[(&str, &[u8])]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        Self(folder)
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_string()
    }

    pub(super) fn config(&self, pattern: &str, document: DocumentUnit) -> DataConfig {
        self.config_with(pattern, |source| source.document = document)
    }

    pub(super) fn config_with(&self, pattern: &str, change: impl FnOnce(&mut SourceConfig)) -> DataConfig {
        let mut source = SourceConfig::of_files(vec![self.path(pattern)]);
        change(&mut source);
        DataConfig { sources: vec![source], ..DataConfig::default() }
    }
}

/// Counts of the items read.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) documents: u64,
    pub(super) rejected: u64,
    pub(super) cut: u64,
    pub(super) replaced: u32,
}

/// Returns all items, or the error that ends them.
pub(super) fn items(config: &DataConfig) -> Result<Vec<Item>> {
    Corpus::open(config)?.documents().collect()
}

/// Returns items in short: `line text`, or if left out, `line reason bytes detail |excerpt`.
pub(super) fn short(config: &DataConfig) -> Vec<String> {
    let mut lines = Vec::new();
    for item in items(config).unwrap() {
        lines.push(match item {
            Item::Document(document) => format!("{} {}", document.location.line, document.text),
            Item::Rejected(left_out) => {
                let Rejected { location, bytes, rejection, excerpt, .. } = left_out;
                format!("{} {} {bytes} {} |{excerpt}", location.line, rejection.reason, rejection.detail)
            }
        });
    }
    lines
}

/// Returns the error of a corpus with its hint, without the folder of the test.
pub(super) fn message(folder: &Folder, config: &DataConfig) -> String {
    format!("{:#}", items(config).unwrap_err()).replace(&folder.path(""), "")
}

pub(super) fn read(config: &DataConfig) -> Result<(Vec<String>, Counts)> {
    let corpus = Corpus::open(config)?;
    let mut items = corpus.documents();
    let mut texts = Vec::new();
    let mut counts = Counts::default();
    for item in items.by_ref() {
        match item? {
            Item::Rejected(_) => counts.rejected += 1,
            Item::Document(document) => {
                counts.documents += 1;
                counts.cut += u64::from(document.was_cut);
                counts.replaced += document.replaced;
                texts.push(document.text);
            }
        }
    }
    assert_eq!(items.position_bytes(), corpus.size_bytes());
    Ok((texts, counts))
}

#[test]
fn a_text_file_is_one_document_or_paragraphs_or_lines() {
    let folder = Folder::with(&[(
        "a.txt",
        b"\xef\xbb\xbf\r\nChapter I\r\n\r\nIt was late.\r\nShe slept.\r\n \r\n\r\n",
    )]);
    let texts = |unit| read(&folder.config("a.txt", unit)).unwrap();
    assert_eq!(texts(DocumentUnit::File).0, ["Chapter I\n\nIt was late.\nShe slept.\n "]);
    assert_eq!(
        texts(DocumentUnit::Paragraph),
        (
            vec!["Chapter I".into(), "It was late.\nShe slept.".into()],
            Counts { documents: 2, ..Counts::default() }
        )
    );
    let (lines, counts) = texts(DocumentUnit::Line);
    assert_eq!(lines, ["Chapter I", "It was late.", "She slept."]);
    assert_eq!(counts.rejected, 4);
}

#[test]
fn patterns_match_in_sorted_order_with_any_compression() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&json_line("two")).unwrap();
    let folder = Folder::with(&[
        ("c.jsonl", &json_line("three")),
        ("b.jsonl.gz", &gzip.finish().unwrap()),
        ("a.jsonl.zst", &zstd::encode_all(json_line("one").as_slice(), 3).unwrap()),
    ]);
    assert_eq!(read(&folder.config("*.jsonl*", DocumentUnit::File)).unwrap().0, ["one", "two", "three"]);
}

fn json_line(text: &str) -> Vec<u8> {
    format!("{{\"id\": 1, \"text\": \"{text}\"}}\n\n").into_bytes()
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
    fn arbitrary_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        unit in 0..4usize,
        name in 0..NAMES.len(),
        policy in 0..3usize,
    ) {
        check(&bytes, unit, NAMES[name], policy)?;
    }

    #[test]
    fn almost_right_files_never_panic(
        text in "([\\[\\]{}:,\"\\\\\n\t ]|\"text\":\"a\"|text|<doc >|</doc>|\r|\\\\ud83d|ä){0,40}",
        unit in 0..4usize,
        name in 0..6usize,
        policy in 0..3usize,
    ) {
        check(text.as_bytes(), unit, NAMES[name], policy)?;
    }

    #[test]
    fn all_text_but_white_space_is_kept(text in "[ a-zäö\u{3000}😀\r\n]{0,200}", limit in 1u64..40, unit in 0..3usize) {
        let unit = [DocumentUnit::File, DocumentUnit::Paragraph, DocumentUnit::Line][unit];
        let folder = Folder::with(&[("a.txt", text.as_bytes())]);
        let config = DataConfig { max_document_bytes: limit, ..folder.config("a.txt", unit) };
        let (texts, counts) = read(&config).unwrap();
        prop_assert_eq!(visible(&texts.concat()), visible(&text));
        prop_assert!(texts.iter().all(|piece| piece.len() as u64 <= limit.max(4)));
        prop_assert_eq!(counts.documents, texts.len() as u64);
    }
}

fn visible(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

const NAMES: [&str; 12] = [
    "a.txt",
    "a.jsonl",
    "a.json",
    "a.csv",
    "a.tsv",
    "a.parquet",
    "a.txt.gz",
    "a.jsonl.zst",
    "a.txt.bz2",
    "a.json.xz",
    "a.csv.gz",
    "a.tsv.xz",
];

/// Requires that any bytes give documents, the same ones twice, or an error with the name of the file.
fn check(bytes: &[u8], unit: usize, name: &str, policy: usize) -> Result<(), TestCaseError> {
    let unit = [DocumentUnit::File, DocumentUnit::Paragraph, DocumentUnit::Line, DocumentUnit::DocTag][unit];
    let folder = Folder::with(&[(name, bytes)]);
    let config = folder.config_with(name, |source| {
        source.document = unit;
        source.invalid_utf8 = [InvalidUtf8::Fail, InvalidUtf8::Replace, InvalidUtf8::Skip][policy];
    });
    let config = DataConfig { max_document_bytes: 16, max_line_bytes: 50, ..config };
    match items(&config) {
        Err(error) => prop_assert!(format!("{error:#}").contains(name), "{error:#}"),
        Ok(all) => {
            let mut again = Vec::new();
            let corpus = Corpus::open(&config).unwrap();
            let mut documents = corpus.documents();
            documents.skip_items(all.len() as u64 / 2).unwrap();
            again.extend(documents.map(Result::unwrap));
            prop_assert_eq!(&all[all.len() / 2..], again.as_slice());
        }
    }
    Ok(())
}
