//! Finds out if a text comes from the web, and measures how much of it each filter would drop.

use anyhow::Result;

use crate::recipe::sample::TextSample;
use config::{DataConfig, FiltersConfig};
use data::corpus::{Judge, SourceFile};

/// Fields of a record that name the page it comes from.
const PAGE_FIELDS: [&str; 4] = ["url", "URL", "source_url", "warc-target-uri"];

/// Number of files that are checked, from the first on.
const MOST_FILES: usize = 8;

/// Largest share of documents that a filter may drop to be used; a filter that drops more is written as a
/// comment.
const MOST_DROPPED: f64 = 0.25;

/// A filter with the values that suit most crawls.
struct Candidate {
    /// Its key below `data.filters`.
    key: &'static str,
    /// Its value as YAML.
    value: &'static str,
    /// True if the configuration uses it; others are shown as comments.
    is_used: bool,
    /// Sets this value.
    set: fn(&mut FiltersConfig),
}

const CANDIDATES: [Candidate; 6] = [
    Candidate { key: "markup", value: "{enabled: true}", is_used: true, set: |f| f.markup.enabled = true },
    Candidate {
        key: "lines",
        value: "{urls: true, boilerplate: true}",
        is_used: true,
        set: |f| (f.lines.urls, f.lines.boilerplate) = (true, true),
    },
    Candidate {
        key: "length",
        value: "{min_words: 5}",
        is_used: true,
        set: |f| f.length.min_words = Some(5),
    },
    Candidate {
        key: "repetition",
        value: "{enabled: true}",
        is_used: true,
        set: |f| f.repetition.enabled = true,
    },
    Candidate { key: "gopher", value: "{enabled: true}", is_used: false, set: |f| f.gopher.enabled = true },
    Candidate { key: "c4", value: "{enabled: true}", is_used: false, set: |f| f.c4.enabled = true },
];

/// The shares of a sample that one filter drops when it is used alone.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterPreview {
    /// Its key below `data.filters`.
    pub key: &'static str,
    /// Its value as YAML.
    pub value: &'static str,
    /// True if the configuration uses it.
    pub is_used: bool,
    /// Share of the documents that it leaves out.
    pub documents: f64,
    /// Share of the text that it leaves out, lines of other documents included.
    pub text: f64,
}

/// Returns why these files look like a crawl, or `None` if they do not.
pub fn crawl_reason(files: &[SourceFile]) -> Option<String> {
    files.iter().take(MOST_FILES).find_map(|file| {
        let name = file.path.display();
        if file.is_web_archive() {
            return Some(format!("`{name}` is a web archive"));
        }
        let object = file.first_object()?;
        let field = PAGE_FIELDS.iter().find(|field| object.contains_key(**field))?;
        Some(format!("records of `{name}` have a field `{field}`"))
    })
}

/// Measures how much of a sample each filter drops.
///
/// # Errors
/// Returns an error if a filter cannot be built.
pub fn preview_filters(sample: &TextSample) -> Result<Vec<FilterPreview>> {
    CANDIDATES
        .iter()
        .map(|candidate| {
            let mut filters = FiltersConfig::default();
            (candidate.set)(&mut filters);
            let [documents, text] = dropped(sample, filters)?;
            Ok(FilterPreview {
                key: candidate.key,
                value: candidate.value,
                is_used: candidate.is_used && documents <= MOST_DROPPED,
                documents,
                text,
            })
        })
        .collect()
}

/// The language that documents should have, and the shares of a sample that are in others.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedLanguage {
    /// ISO code.
    pub code: String,
    /// Share of the documents that the filter leaves out.
    pub documents: f64,
    /// Share of the text that it leaves out.
    pub text: f64,
}

impl ExpectedLanguage {
    /// Measures how much of a sample is in other languages than that of `code`.
    ///
    /// # Errors
    /// Returns an error if there is no such language.
    pub fn new(code: &str, sample: &TextSample) -> Result<Self> {
        let [documents, text] = dropped(sample, Self::filter(code))?;
        Ok(Self { code: code.to_string(), documents, text })
    }

    /// The filter that leaves out documents in other languages.
    pub fn filter(code: &str) -> FiltersConfig {
        let mut filters = FiltersConfig::default();
        filters.language.expected = vec![code.to_string()];
        filters
    }
}

/// Returns the shares of the documents and of the text of a sample that filters drop. They are shares of
/// cleaned text: what cleaning takes out is not counted.
fn dropped(sample: &TextSample, filters: FiltersConfig) -> Result<[f64; 2]> {
    let cleaner = Judge::new(&DataConfig::default())?;
    let total: usize = sample.documents().iter().map(|text| cleaner.judge(text).text.len()).sum();
    let judge = Judge::new(&DataConfig { filters, ..DataConfig::default() })?;
    let judged = sample.documents().iter().map(|text| judge.judge(text));
    let kept: Vec<usize> = judged.filter(|one| one.rejection.is_none()).map(|one| one.text.len()).collect();
    let documents = 1.0 - kept.len() as f64 / sample.documents().len().max(1) as f64;
    let text = 1.0 - kept.iter().sum::<usize>() as f64 / total.max(1) as f64;
    Ok([documents, text])
}

/// The filters that a configuration of a crawl uses.
pub fn crawl_filters(previews: &[FilterPreview]) -> FiltersConfig {
    let mut filters = FiltersConfig::default();
    for preview in previews.iter().filter(|preview| preview.is_used) {
        if let Some(candidate) = CANDIDATES.iter().find(|candidate| candidate.key == preview.key) {
            (candidate.set)(&mut filters);
        }
    }
    filters
}
