//! Bars and histograms of the page.

use std::collections::BTreeMap;

use crate::corpus::report::html::{color, source_color, words};
use crate::corpus::report::sections::share;
use crate::corpus::report::tally::UNDETERMINED;
use crate::corpus::report::{Amount, Lengths, Report, SourceTally};
use base::pages::chart::{Columns, Portion};
use base::pages::report::{Bar, Block, Drawing, Figure};
use base::pages::text::{Part, Text};
use base::quantity::format_grouped;

/// Number of languages that are listed; further ones are summed up in one line.
const LANGUAGES: usize = 12;

/// Returns bars for all sources together and for each: documents kept, and documents dropped for each reason.
pub(super) fn fate(report: &Report) -> Block {
    let reasons = report.reasons();
    let all = Text(vec![Part::Bold("all".to_string())]);
    let all = (report.sources.len() > 1).then(|| bar(all, &reasons, report.kept, &report.dropped));
    let sources = report.sources.iter();
    let sources =
        sources.map(|source| bar(source.name.as_str().into(), &reasons, source.kept, &source.dropped));
    Block::Bars("bars", all.into_iter().chain(sources).collect())
}

fn bar(name: Text, reasons: &[(&str, Amount)], kept: Amount, dropped: &BTreeMap<String, Amount>) -> Bar {
    let reasons = reasons.iter().enumerate().map(|(index, (reason, _))| {
        (color(index), words(reason), dropped.get(*reason).map_or(0, |amount| amount.documents))
    });
    let kept = ("kept".to_string(), "kept".to_string(), kept.documents);
    let counts: Vec<(String, String, u64)> = std::iter::once(kept).chain(reasons).collect();
    let whole = sum(counts.iter().map(|count| count.2));
    let parts = counts.into_iter().map(|(color, name, count)| {
        let share = share(count, whole);
        (color, format!("{name}: {} ({:.1} %)", format_grouped(count), 100.0 * share), share)
    });
    Bar { name, parts: parts.collect(), end: None }
}

/// Returns the sum of counts. It saturates, since a report that was read from a file can have any numbers.
fn sum(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

/// Returns the legend with the colours of the sources.
fn legend(report: &Report) -> Block {
    let names = report.sources.iter().enumerate().map(|(index, source)| {
        let documents = Part::Muted(format_grouped(source.kept.documents));
        Text::from(format!("{} ", source.name)).after_dot(&source_color(index)).with(documents)
    });
    Block::Legend(names.collect())
}

/// Returns histograms of the lengths of kept documents, in bytes and in words, stacked by source.
pub(super) fn lengths(report: &Report) -> Vec<Block> {
    if report.sources.iter().all(|source| source.kept.documents == 0) {
        return Vec::new();
    }
    let charts = vec![
        lengths_chart(report, "documents by bytes", |tally| &tally.lengths_bytes),
        lengths_chart(report, "documents by words", |tally| &tally.lengths_words),
    ];
    let legend = (report.sources.len() > 1).then(|| legend(report));
    [Block::Charts("pair", charts)].into_iter().chain(legend).collect()
}

fn lengths_chart(report: &Report, title: &str, lengths: fn(&SourceTally) -> &Lengths) -> Figure {
    let sources: Vec<(&str, &Lengths)> =
        report.sources.iter().map(|source| (source.name.as_str(), lengths(source))).collect();
    Figure { caption: title.into(), drawing: Drawing::Columns(histogram(title, &sources)), note: None }
}

fn histogram(title: &str, sources: &[(&str, &Lengths)]) -> Columns {
    let end = sources.iter().map(|(_, lengths)| lengths.0.len()).max().unwrap_or(0);
    let first = (0..end)
        .find(|&bucket| sources.iter().any(|(_, lengths)| documents_in(lengths, bucket) > 0))
        .unwrap_or(0);
    let label_every = (end - first).div_ceil(6).max(1);
    let mut columns = Vec::new();
    for bucket in first..end {
        let is_named = (bucket - first).is_multiple_of(label_every);
        let label = if is_named { binary(Lengths::least(bucket)) } else { String::new() };
        let mut portions = Vec::new();
        for (index, (name, lengths)) in sources.iter().enumerate() {
            let documents = documents_in(lengths, bucket);
            if documents > 0 {
                portions.push(Portion {
                    value: documents as f64,
                    color: format!("var(--{})", source_color(index)),
                    text: format!("{name}: {} of {}", format_grouped(documents), range(bucket)),
                });
            }
        }
        columns.push((label, portions));
    }
    Columns { title: title.to_string(), columns }
}

fn documents_in(lengths: &Lengths, bucket: usize) -> u64 {
    lengths.0.get(bucket).copied().unwrap_or(0)
}

fn range(bucket: usize) -> String {
    let least = Lengths::least(bucket);
    let next = Lengths::least(bucket + 1);
    if next - least <= 1 {
        format_grouped(least)
    } else {
        format!("{} to {}", format_grouped(least), format_grouped(next - 1))
    }
}

/// Formats a power of two with a binary unit: `512`, `64k`, `1M`.
fn binary(power: u64) -> String {
    let unit = ["", "k", "M", "G", "T", "P", "E"]
        .into_iter()
        .enumerate()
        .rfind(|(exponent, _)| power >> (10 * exponent) > 0);
    unit.map_or("0".to_string(), |(exponent, unit)| format!("{}{unit}", power >> (10 * exponent)))
}

/// Returns bars of kept documents by language; `None` if no language was identified, or only one.
pub(super) fn languages(report: &Report) -> Option<Block> {
    let mut all: BTreeMap<&str, u64> = BTreeMap::new();
    for (code, amount) in report.sources.iter().flat_map(|source| &source.languages) {
        let counted = all.entry(code).or_default();
        *counted = sum([*counted, amount.documents]);
    }
    if all.len() < 2 || all.keys().all(|code| *code == UNDETERMINED) {
        return None;
    }
    let mut languages: Vec<(&str, u64)> = all.into_iter().collect();
    languages.sort_by_key(|(_, documents)| std::cmp::Reverse(*documents));
    let whole = sum(languages.iter().map(|(_, documents)| *documents));
    let highest = languages.first().map_or(1, |(_, documents)| *documents);
    let rest = sum(languages.iter().skip(LANGUAGES).map(|(_, documents)| *documents));
    let mut rows: Vec<(String, u64)> = languages
        .iter()
        .take(LANGUAGES)
        .map(|(code, documents)| {
            let name = if *code == UNDETERMINED { "undetermined" } else { code };
            (name.to_string(), *documents)
        })
        .collect();
    if rest > 0 {
        rows.push((format!("{} others", languages.len() - LANGUAGES), rest));
    }
    let bars = rows.into_iter().map(|(name, documents)| {
        let percent = format!("{:.1} %", 100.0 * share(documents, whole));
        let width = share(documents, highest).min(1.0);
        let parts = vec![("kept".to_string(), format!("{name}: {percent}"), width)];
        let end = Text::from(format!("{} ", format_grouped(documents))).with(Part::Small(percent));
        Bar { name: name.into(), parts, end: Some(end) }
    });
    Some(Block::Bars("bars counted", bars.collect()))
}
