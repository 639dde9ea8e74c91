//! Reads the real files under `MLMTRAIN_DATA`, and compares the numbers of documents with the known ones.
//! Skipped if there are no such files.

use crate::corpus::read::tests::{items, read};
use base::fs::testing::real_data;
use config::{DataConfig, DocumentUnit, Format, InvalidUtf8, SourceConfig};

/// Counts the documents and the rejected items of some files.
fn counts(name: &str, change: impl FnOnce(&mut SourceConfig)) -> Option<(u64, u64)> {
    let mut source = SourceConfig::of_files(vec![real_data()?.join(name).to_str().unwrap().to_string()]);
    change(&mut source);
    let config = DataConfig { sources: vec![source], max_document_bytes: 1 << 30, ..DataConfig::default() };
    let (_, counts) = read(&config).unwrap();
    Some((counts.documents, counts.rejected))
}

/// Requires these numbers of documents and rejected items.
fn expect(name: &str, documents: u64, rejected: u64, change: impl FnOnce(&mut SourceConfig)) {
    if let Some(found) = counts(name, change) {
        assert_eq!(found, (documents, rejected), "{name}");
    }
}

fn unit(document: DocumentUnit) -> impl FnOnce(&mut SourceConfig) {
    move |source| source.document = document
}

#[test]
fn english() {
    expect("text_en/imdb_unsup_25k.jsonl.gz", 25_000, 0, |_| ());
    expect("text_en/novels_txt", 40, 0, |_| ());
    expect("text_en/web_blogs_news.jsonl.zst", 900, 0, |_| ());
    expect("text_en/web_c4.txt", 118, 0, unit(DocumentUnit::Line));
    expect("text_en/web_c4_1480_prefix_fields.jsonl", 1480, 0, |source| source.field = "prefix".to_string());
    expect("text_en/wiki_docs.txt", 2349, 0, unit(DocumentUnit::DocTag));
    expect("text_en/wikitext-2_valid.txt", 2461, 3760 - 2461, unit(DocumentUnit::Line));
    expect("text_en/wikitext-2_valid.txt", 1160, 0, unit(DocumentUnit::Paragraph));
}

#[test]
fn finnish() {
    fn titled(source: &mut SourceConfig) {
        source.title_field = Some("title".to_string());
    }
    expect("text_fi/news_headlines_20*", 9142 + 48_699 + 42_937 + 38_922, 0, titled);
    expect("text_fi/court_kko_1980-1994.jsonl.gz", 2648, 0, titled);
    expect("text_fi/web_c4_fi*", 2500, 0, |_| ());
    expect("text_fi/tdt_train_sentences.txt", 15_672, 0, unit(DocumentUnit::Line));
    expect("text_fi/kalevala.txt", 106, 0, unit(DocumentUnit::Paragraph));
    expect("text_fi", 9142 + 48_699 + 42_937 + 38_922 + 2648 + 2500 + 2, 0, |_| ());
}

#[test]
fn messy_and_labelled() {
    expect("messy/tweets_emoji.txt", 5000, 0, unit(DocumentUnit::Line));
    // One of the eleven pages is Latin-1.
    expect("messy/html/*", 11, 0, |source| source.invalid_utf8 = InvalidUtf8::Replace);
    expect("messy/other_languages/*.tsv", 92 + 111 + 161 + 100 + 160 + 317, 0, |source| {
        (source.format, source.document) = (Format::Text, DocumentUnit::Line);
    });
    expect("cls/ag_news/train.csv", 9000, 0, |_| ());
    expect("cls/banking77/train.csv", 10_003, 0, |_| ());
    expect("cls/fi_eduskunta_vkk/train.csv.bz2", 49_106, 0, |source| source.field = "sentence".to_string());
    expect("cls/sst2/dev.tsv", 872, 0, |source| source.field = "content".to_string());
    expect("cls/sst2/train.tsv", 67_349, 0, |source| source.field = "sentence".to_string());
    expect("cls/imdb_4k/train.jsonl", 4000, 0, |_| ());
}

#[test]
fn the_latin1_page_is_named() {
    let Some(data) = real_data() else { return };
    let source = SourceConfig::of_files(vec![data.join("messy/html/*").to_str().unwrap().to_string()]);
    let message =
        items(&DataConfig { sources: vec![source], ..DataConfig::default() }).unwrap_err().to_string();
    assert!(message.contains("cdu-fraktion-erfurt.de.waldorfschule.html:"), "{message}");
}
