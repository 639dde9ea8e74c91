//! Files written to a temporary folder, read back as documents.

use std::io::Write;

use proptest::prelude::*;

use super::*;
use crate::config::Format;
use crate::config::SourceConfig;
use crate::config::data::DocumentUnit;

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
        let source = SourceConfig { files, format: Format::Auto, document, field: "text".to_string() };
        DataConfig { sources: vec![source], ..DataConfig::default() }
    }
}

fn read(config: &DataConfig) -> Result<(Vec<String>, Counts)> {
    let corpus = Corpus::open(config)?;
    let mut documents = corpus.documents();
    let mut texts = Vec::new();
    for document in documents.by_ref() {
        texts.push(document?.text);
    }
    assert_eq!(documents.position_bytes(), corpus.size_bytes());
    Ok((texts, documents.counts()))
}

#[test]
fn a_text_file_is_one_document_or_paragraphs_or_lines() {
    let folder = Folder::with(&[("a.txt", b"\xef\xbb\xbf\r\nChapter I\r\n\r\nIt was late.\r\nShe slept.\r\n \r\n\r\n")]);
    let texts = |unit| read(&folder.config("a.txt", unit)).unwrap();
    assert_eq!(texts(DocumentUnit::File).0, ["Chapter I\n\nIt was late.\nShe slept.\n "]);
    assert_eq!(
        texts(DocumentUnit::Paragraph),
        (vec!["Chapter I".into(), "It was late.\nShe slept.".into()], Counts { documents: 2, bytes: 32, empty: 0, cut: 0 })
    );
    let (lines, counts) = texts(DocumentUnit::Line);
    assert_eq!(lines, ["Chapter I", "It was late.", "She slept."]);
    assert_eq!(counts.empty, 4);
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

#[test]
fn the_split_depends_on_the_text_alone() {
    let (few, many) = (paragraphs(0..300), paragraphs(0..900));
    let folder = Folder::with(&[("a.txt", few.as_bytes()), ("b.txt", many.as_bytes())]);
    let split = |name| {
        let config = folder.config(name, DocumentUnit::Paragraph);
        let corpus = Corpus::open(&config).unwrap();
        let scan = Scan::of(&corpus, 0.1, |_| {}).unwrap();
        corpus.documents().map(|d| d.unwrap().text).filter(|text| scan.split.side(text) == Side::Validation).collect::<Vec<_>>()
    };
    let (few, many) = (split("a.txt"), split("b.txt"));
    assert!((15..50).contains(&few.len()), "{}", few.len());
    assert_eq!(few[..], many[..few.len()]);
}

#[test]
fn a_small_corpus_has_a_document_on_each_side_or_is_refused() {
    for fraction in [0.001, 0.999] {
        let folder = Folder::with(&[("a.txt", b"one\n\ntwo\n\nthree")]);
        let corpus = Corpus::open(&folder.config("a.txt", DocumentUnit::Paragraph)).unwrap();
        let scan = Scan::of(&corpus, fraction, |_| {}).unwrap();
        let validation = corpus.documents().filter(|d| scan.split.side(&d.as_ref().unwrap().text) == Side::Validation).count();
        assert_eq!(validation, if fraction < 0.5 { 1 } else { 2 });
        let train: u64 = corpus
            .documents()
            .map(|d| d.unwrap().text)
            .filter(|text| scan.split.side(text) == Side::Train)
            .map(|text| text.len() as u64)
            .sum();
        assert_eq!(train, scan.train_bytes);
    }
    let folder = Folder::with(&[("a.txt", b"same\n\nsame"), ("b.txt", b" \n\n")]);
    let scan = |name| Scan::of(&Corpus::open(&folder.config(name, DocumentUnit::Paragraph)).unwrap(), 0.5, |_| {});
    assert!(scan("a.txt").unwrap_err().to_string().contains("hold one document"));
    assert!(scan("b.txt").unwrap_err().to_string().contains("hold no text"));
}

fn paragraphs(numbers: std::ops::Range<u32>) -> String {
    numbers.map(|number| format!("Paragraph {number} of a story.\n\n")).collect::<Vec<_>>().concat()
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
