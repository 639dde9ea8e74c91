//! Judges real pages, news and reviews in Finnish and English: the reasons and their counts, and that the
//! results do not vary.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::*;
use crate::corpus::{Corpus, Item};
use base::fs::testing::real_data;
use config::{DocumentUnit, Format, SourceConfig};

/// Returns the paths of files in the folder of real data; if there is no such folder, prints that and returns
/// `None`.
fn real(names: &[&str]) -> Option<Vec<String>> {
    let folder = real_data()?;
    Some(names.iter().map(|name| folder.join(name).display().to_string()).collect())
}

/// Returns the first `most` documents of a file.
fn documents(name: &str, unit: DocumentUnit, most: usize) -> Option<Vec<String>> {
    // The files of other languages have the extension of tables, but no header.
    let format = if name.starts_with("messy/other_languages") { Format::Text } else { Format::Auto };
    let source = SourceConfig { document: unit, format, ..SourceConfig::of_files(real(&[name])?) };
    let corpus =
        Corpus::open(&DataConfig { sources: vec![source], ..DataConfig::default() }).expect("is there");
    let texts = corpus.documents().filter_map(|item| match item.expect("can be read") {
        Item::Document(document) => Some(document.text),
        Item::Rejected(_) => None,
    });
    Some(texts.take(most).collect())
}

/// Counts the documents by the reason for leaving them out; `kept` for the others.
fn tally(judge: &Judge, texts: &[String]) -> BTreeMap<&'static str, usize> {
    let mut tally = BTreeMap::new();
    for text in texts {
        *tally
            .entry(judge.judge(text).rejection.map_or("kept", |rejection| rejection.reason))
            .or_default() += 1;
    }
    tally
}

fn markup_only() -> Judge {
    let mut data = DataConfig::default();
    data.filters.markup.enabled = true;
    Judge::new(&data).expect("is right")
}

/// Configuration with the rules of all papers and one expected language.
fn strict(language: &str) -> DataConfig {
    let mut data = DataConfig::default();
    let filters = &mut data.filters;
    (filters.markup.enabled, filters.c4.enabled, filters.gopher.enabled, filters.repetition.enabled) =
        (true, true, true, true);
    filters.language.expected = vec![language.to_string()];
    data
}

#[test]
fn html_pages_are_distinguished_from_web_text() {
    let judge = markup_only();
    let Some(folder) = real(&["messy/html"]) else { return };
    // One of them is in another encoding than UTF-8.
    let files = std::fs::read_dir(&folder[0]).expect("is there").map(|entry| entry.expect("is there").path());
    let pages: Vec<String> = files
        .map(|file| String::from_utf8_lossy(&std::fs::read(file).expect("can be read")).into_owned())
        .collect();
    assert_eq!(tally(&judge, &pages), BTreeMap::from([("html_markup", 11)]));
    let mut data = DataConfig::default();
    data.filters.markup.enabled = true;
    data.filters.markup.pages = false;
    let share_only = Judge::new(&data).expect("is right");
    assert_eq!(tally(&share_only, &pages), BTreeMap::from([("html_markup", 11)]), "by their tags alone");
    for (name, unit) in [
        ("text_fi/web_c4_fi.jsonl", DocumentUnit::File),
        ("text_fi/news_headlines_2018.jsonl", DocumentUnit::File),
        ("text_en/web_c4.txt", DocumentUnit::Line),
        ("text_en/imdb_unsup_25k.jsonl.gz", DocumentUnit::File),
    ] {
        let texts = documents(name, unit, 1000).expect("is there");
        let wrong = tally(&judge, &texts).get("html_markup").copied().unwrap_or(0);
        assert!(wrong * 200 <= texts.len(), "{name}: {wrong} of {}", texts.len());
    }
}

#[test]
fn other_languages_are_found_and_finnish_is_kept() {
    let mut data = DataConfig::default();
    data.filters.language.expected = vec!["fin".to_string()];
    let judge = Judge::new(&data).expect("is right");
    for language in ["ar", "ca", "hi", "jp", "ur", "zh"] {
        let Some(texts) =
            documents(&format!("messy/other_languages/{language}.tsv"), DocumentUnit::Line, 200)
        else {
            return;
        };
        let judged: Vec<Judged> = texts.iter().map(|text| judge.judge(text)).collect();
        let kept =
            judged.iter().filter(|judged| judged.rejection.is_none() && judged.language.is_some()).count();
        assert_eq!(kept, 0, "{language}");
    }
    // Some 3 % of these pages are identified as other languages.
    for (name, least) in [("text_fi/web_c4_fi.jsonl", 0.95), ("text_fi/news_headlines_2018.jsonl", 0.98)] {
        let texts = documents(name, DocumentUnit::File, 500).expect("is there");
        let kept = tally(&judge, &texts)["kept"];
        assert!(kept as f64 >= least * texts.len() as f64, "{name}: {kept} of {}", texts.len());
    }
}

#[test]
fn the_rules_of_the_papers_keep_prose_in_both_languages() {
    for (name, language, unit, least) in [
        ("text_fi/web_c4_fi.jsonl", "fin", DocumentUnit::File, 0.5),
        ("text_en/imdb_unsup_25k.jsonl.gz", "eng", DocumentUnit::File, 0.8),
    ] {
        let Some(texts) = documents(name, unit, 400) else { return };
        let found = tally(&Judge::new(&strict(language)).expect("is right"), &texts);
        assert!(found["kept"] as f64 >= least * texts.len() as f64, "{name}: {found:?}");
    }
}

#[test]
fn the_same_text_gets_the_same_judgement_on_any_number_of_threads() {
    let Some(texts) = documents("text_fi/web_c4_fi.jsonl", DocumentUnit::File, 200) else { return };
    let mut data = strict("fin");
    data.cleaning.html_tags = true;
    data.filters.perplexity.reference_files = real(&["text_fi/kalevala.txt"]).expect("is there");
    data.filters.perplexity.max_perplexity = Some(9.0);
    let judges = [Judge::new(&data).expect("is right"), Judge::new(&data).expect("is right")];
    let alone: Vec<Judged> = texts.iter().map(|text| judges[0].judge(text)).collect();
    let together: Vec<Judged> = texts.par_iter().map(|text| judges[1].judge(text)).collect();
    assert_eq!(alone, together);
}

#[test]
fn every_reason_is_explained_once() {
    let reasons = reasons();
    let mut names: Vec<&str> = reasons.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), reasons.len());
    assert!(reasons.iter().all(|(name, about)| {
        name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            && about.ends_with('.')
    }));
    let Some(texts) = documents("text_fi/web_c4_fi.jsonl", DocumentUnit::File, 300) else { return };
    let judge = Judge::new(&strict("fin")).expect("is right");
    for judged in texts.iter().map(|text| judge.judge(text)) {
        let names_given = judged
            .rejection
            .iter()
            .map(|rejection| rejection.reason)
            .chain(judged.changes.iter().map(|(name, _)| *name));
        names_given.for_each(|name| assert!(names.contains(&name), "{name}"));
    }
}
