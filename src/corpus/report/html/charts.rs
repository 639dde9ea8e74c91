//! Bars and histograms as inline SVG; their text is HTML wherever it can be, so that it keeps its size on a
//! phone.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::corpus::report::Amount;
use crate::corpus::report::Lengths;
use crate::corpus::report::Report;
use crate::corpus::report::SourceTally;
use crate::corpus::report::html::color;
use crate::corpus::report::html::source_color;
use crate::corpus::report::html::words;
use crate::corpus::report::sections::share;
use crate::corpus::report::tally::UNDETERMINED;
use crate::pages::chart;
use crate::pages::chart::Columns;
use crate::pages::chart::Portion;
use crate::pages::html::escape;
use crate::quantity::format_grouped;

/// More languages than these are one line.
const LANGUAGES: usize = 12;

/// For all and for each source: what was kept, and what was dropped for each reason, by documents.
pub(super) fn fate(report: &Report) -> String {
    let reasons = report.reasons();
    let bar = |name: &str, kept: Amount, dropped: &BTreeMap<String, Amount>| {
        let mut parts = vec![("kept".to_string(), "kept".to_string(), kept.documents)];
        for (index, (reason, _)) in reasons.iter().enumerate() {
            parts.push((
                color(index),
                words(reason),
                dropped.get(*reason).map_or(0, |amount| amount.documents),
            ));
        }
        format!("<div class=\"bar\"><span>{name}</span>{}</div>\n", stacked(&parts))
    };
    let mut html = "<div class=\"bars\">\n".to_string();
    if report.sources.len() > 1 {
        html.push_str(&bar("<b>all</b>", report.kept, &report.dropped));
    }
    report.sources.iter().for_each(|s| html.push_str(&bar(&escape(&s.name), s.kept, &s.dropped)));
    html + "</div>\n"
}

/// The sum of counts, which may be any numbers in a report that was read.
fn sum(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

/// One bar of (colour, name, count), as wide as its place.
fn stacked(parts: &[(String, String, u64)]) -> String {
    let whole = sum(parts.iter().map(|part| part.2));
    let part = |(color, name, count): &(String, String, u64)| {
        let share = share(*count, whole);
        (color.clone(), format!("{name}: {} ({:.1} %)", format_grouped(*count), 100.0 * share), share)
    };
    chart::bar(&parts.iter().map(part).collect::<Vec<_>>())
}

/// The colours of the sources.
fn legend(report: &Report) -> String {
    let mut html = "<ul class=\"legend\">\n".to_string();
    for (index, source) in report.sources.iter().enumerate() {
        let (color, name) = (source_color(index), escape(&source.name));
        let documents = format_grouped(source.kept.documents);
        let _ = writeln!(
            html,
            "<li><i class=\"dot {color}\"></i>{name} <span class=\"muted\">{documents}</span></li>"
        );
    }
    html + "</ul>\n"
}

/// Lengths of kept documents in bytes and in words, stacked by source.
pub(super) fn lengths(report: &Report) -> String {
    if report.sources.iter().all(|source| source.kept.documents == 0) {
        return String::new();
    }
    let chart = |title: &str, of: fn(&SourceTally) -> &Lengths| {
        let sources: Vec<(&str, &Lengths)> =
            report.sources.iter().map(|s| (s.name.as_str(), of(s))).collect();
        format!("<figure><figcaption>{title}</figcaption>{}</figure>\n", histogram(title, &sources))
    };
    let mut html = "<div class=\"pair\">\n".to_string();
    html.push_str(&chart("documents by bytes", |tally| &tally.lengths_bytes));
    html.push_str(&chart("documents by words", |tally| &tally.lengths_words));
    html.push_str("</div>\n");
    if report.sources.len() > 1 {
        html.push_str(&legend(report));
    }
    html
}

fn histogram(title: &str, sources: &[(&str, &Lengths)]) -> String {
    let count = |lengths: &Lengths, bucket: usize| lengths.0.get(bucket).copied().unwrap_or(0);
    let total = |bucket| sum(sources.iter().map(|(_, lengths)| count(lengths, bucket)));
    let end = sources.iter().map(|(_, lengths)| lengths.0.len()).max().unwrap_or(0);
    let first = (0..end).find(|&bucket| total(bucket) > 0).unwrap_or(0);
    let label_every = (end - first).div_ceil(6).max(1);
    let column = |bucket: usize| {
        let is_named = (bucket - first).is_multiple_of(label_every);
        let name = if is_named { binary(Lengths::least(bucket)) } else { String::new() };
        let counted =
            sources.iter().enumerate().map(|(index, (name, lengths))| (index, *name, count(lengths, bucket)));
        let portion = |(index, name, documents): (usize, &str, u64)| Portion {
            value: documents as f64,
            color: format!("var(--{})", source_color(index)),
            text: format!("{name}: {} of {}", format_grouped(documents), range(bucket)),
        };
        (name, counted.filter(|(_, _, documents)| *documents > 0).map(portion).collect())
    };
    Columns { title: title.to_string(), columns: (first..end).map(column).collect() }.svg()
}

fn range(bucket: usize) -> String {
    let (least, next) = (Lengths::least(bucket), Lengths::least(bucket + 1));
    if next - least <= 1 {
        format_grouped(least)
    } else {
        format!("{} to {}", format_grouped(least), format_grouped(next - 1))
    }
}

/// A power of two as people write it: `512`, `64k`, `1M`.
fn binary(power: u64) -> String {
    let unit = ["", "k", "M", "G", "T", "P", "E"]
        .into_iter()
        .enumerate()
        .rfind(|(exponent, _)| power >> (10 * exponent) > 0);
    unit.map_or("0".to_string(), |(exponent, unit)| format!("{}{unit}", power >> (10 * exponent)))
}

/// Accepted documents by language; nothing when no language was looked at.
pub(super) fn languages(report: &Report) -> String {
    let mut all: BTreeMap<&str, u64> = BTreeMap::new();
    for (code, amount) in report.sources.iter().flat_map(|source| &source.languages) {
        let counted = all.entry(code).or_default();
        *counted = sum([*counted, amount.documents]);
    }
    if all.keys().all(|code| *code == UNDETERMINED) {
        return String::new();
    }
    let mut languages: Vec<(&str, u64)> = all.into_iter().collect();
    languages.sort_by_key(|(_, documents)| std::cmp::Reverse(*documents));
    let whole = sum(languages.iter().map(|(_, documents)| *documents));
    let highest = languages.first().map_or(1, |(_, documents)| *documents);
    let rest = sum(languages.iter().skip(LANGUAGES).map(|(_, documents)| *documents));
    let name = |code: &str| if code == UNDETERMINED { "undetermined".to_string() } else { escape(code) };
    let mut rows: Vec<(String, u64)> =
        languages.iter().take(LANGUAGES).map(|(code, documents)| (name(code), *documents)).collect();
    if rest > 0 {
        rows.push((format!("{} others", languages.len() - LANGUAGES), rest));
    }
    let mut html = "<div class=\"bars counted\">\n".to_string();
    for (name, documents) in rows {
        let width = 1000.0 * share(documents, highest).min(1.0);
        let count =
            format!("{} <small>{:.1} %</small>", format_grouped(documents), 100.0 * share(documents, whole));
        let _ = writeln!(
            html,
            "<div class=\"bar\"><span>{name}</span><svg viewBox=\"0 0 1000 20\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
            <rect class=\"kept\" width=\"{width:.2}\" height=\"20\"/></svg><em>{count}</em></div>"
        );
    }
    html + "</div>\n"
}
