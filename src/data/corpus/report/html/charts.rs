//! Bars and histograms as inline SVG. Their text is HTML where possible, so that it keeps its size on a
//! phone.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::corpus::report::html::{color, source_color, words};
use crate::corpus::report::sections::share;
use crate::corpus::report::tally::UNDETERMINED;
use crate::corpus::report::{Amount, Lengths, Report, SourceTally};
use base::pages::chart;
use base::pages::chart::{Columns, Portion};
use base::pages::html::escape;
use base::quantity::format_grouped;

/// Number of languages that are listed; further ones are summed up in one line.
const LANGUAGES: usize = 12;

/// Returns bars for all sources together and for each: documents kept, and documents dropped for each reason.
pub(super) fn fate(report: &Report) -> String {
    let reasons = report.reasons();
    let mut html = "<div class=\"bars\">\n".to_string();
    if report.sources.len() > 1 {
        html.push_str(&bar("<b>all</b>", &reasons, report.kept, &report.dropped));
    }
    for source in &report.sources {
        html.push_str(&bar(&escape(&source.name), &reasons, source.kept, &source.dropped));
    }
    html + "</div>\n"
}

fn bar(name: &str, reasons: &[(&str, Amount)], kept: Amount, dropped: &BTreeMap<String, Amount>) -> String {
    let mut parts = vec![("kept".to_string(), "kept".to_string(), kept.documents)];
    for (index, (reason, _)) in reasons.iter().enumerate() {
        parts.push((color(index), words(reason), dropped.get(*reason).map_or(0, |amount| amount.documents)));
    }
    format!("<div class=\"bar\"><span>{name}</span>{}</div>\n", stacked(&parts))
}

/// Returns the sum of counts. It saturates, since a report that was read from a file can have any numbers.
fn sum(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

/// Returns one bar of full width, with a part for each (colour, name, count).
fn stacked(parts: &[(String, String, u64)]) -> String {
    let whole = sum(parts.iter().map(|part| part.2));
    let mut shares = Vec::with_capacity(parts.len());
    for (color, name, count) in parts {
        let share = share(*count, whole);
        let text = format!("{name}: {} ({:.1} %)", format_grouped(*count), 100.0 * share);
        shares.push((color.clone(), text, share));
    }
    chart::bar(&shares)
}

/// Returns the legend with the colours of the sources.
fn legend(report: &Report) -> String {
    let mut html = "<ul class=\"legend\">\n".to_string();
    for (index, source) in report.sources.iter().enumerate() {
        let color = source_color(index);
        let name = escape(&source.name);
        let documents = format_grouped(source.kept.documents);
        let _ = writeln!(
            html,
            "<li><i class=\"dot {color}\"></i>{name} <span class=\"muted\">{documents}</span></li>"
        );
    }
    html + "</ul>\n"
}

/// Returns histograms of the lengths of kept documents, in bytes and in words, stacked by source.
pub(super) fn lengths(report: &Report) -> String {
    if report.sources.iter().all(|source| source.kept.documents == 0) {
        return String::new();
    }
    let mut html = "<div class=\"pair\">\n".to_string();
    html.push_str(&lengths_chart(report, "documents by bytes", |tally| &tally.lengths_bytes));
    html.push_str(&lengths_chart(report, "documents by words", |tally| &tally.lengths_words));
    html.push_str("</div>\n");
    if report.sources.len() > 1 {
        html.push_str(&legend(report));
    }
    html
}

fn lengths_chart(report: &Report, title: &str, lengths: fn(&SourceTally) -> &Lengths) -> String {
    let sources: Vec<(&str, &Lengths)> =
        report.sources.iter().map(|source| (source.name.as_str(), lengths(source))).collect();
    format!("<figure><figcaption>{title}</figcaption>{}</figure>\n", histogram(title, &sources))
}

fn histogram(title: &str, sources: &[(&str, &Lengths)]) -> String {
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
    Columns { title: title.to_string(), columns }.svg()
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

/// Returns bars of kept documents by language; empty if no language was identified, or only one.
pub(super) fn languages(report: &Report) -> String {
    let mut all: BTreeMap<&str, u64> = BTreeMap::new();
    for (code, amount) in report.sources.iter().flat_map(|source| &source.languages) {
        let counted = all.entry(code).or_default();
        *counted = sum([*counted, amount.documents]);
    }
    if all.len() < 2 || all.keys().all(|code| *code == UNDETERMINED) {
        return String::new();
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
            let name = if *code == UNDETERMINED { "undetermined".to_string() } else { escape(code) };
            (name, *documents)
        })
        .collect();
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
