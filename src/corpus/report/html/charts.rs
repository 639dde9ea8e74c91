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
use crate::pages::html::escape;
use crate::quantity::format_count;
use crate::quantity::format_grouped;

/// More languages than these are one line.
const LANGUAGES: usize = 12;

/// Size of a histogram and of its plot, in units of about a pixel on a phone.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 38.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 24.0;

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
    let mut svg = "<svg viewBox=\"0 0 1000 20\" preserveAspectRatio=\"none\" role=\"img\">".to_string();
    let mut before = 0;
    for (color, name, count) in parts.iter().filter(|part| part.2 > 0) {
        let (x, width) = (1000.0 * share(before, whole), 1000.0 * share(*count, whole));
        let percent = 100.0 * share(*count, whole);
        let title = format!("{name}: {} ({percent:.1} %)", format_grouped(*count));
        let _ = write!(
            svg,
            "<rect class=\"{color}\" x=\"{x:.2}\" width=\"{width:.2}\" height=\"20\"><title>{title}</title></rect>"
        );
        before = count.saturating_add(before);
    }
    svg + "</svg>"
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
        format!("<figure><figcaption>{title}</figcaption>{}</figure>\n", histogram(&sources))
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

fn histogram(sources: &[(&str, &Lengths)]) -> String {
    let count = |lengths: &Lengths, bucket: usize| lengths.0.get(bucket).copied().unwrap_or(0);
    let total = |bucket| sum(sources.iter().map(|(_, lengths)| count(lengths, bucket)));
    let end = sources.iter().map(|(_, lengths)| lengths.0.len()).max().unwrap_or(0);
    let first = (0..end).find(|&bucket| total(bucket) > 0).unwrap_or(0);
    let highest = round_up((first..end).map(total).max().unwrap_or(1).max(1));
    let (step, plot_height) = ((WIDTH - LEFT) / (end - first).max(1) as f64, HEIGHT - TOP - BOTTOM);
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
    grid(&mut svg, highest);
    let label_every = (end - first).div_ceil(6).max(1);
    for bucket in first..end {
        let (x, mut y) = (LEFT + (bucket - first) as f64 * step, HEIGHT - BOTTOM);
        for (index, (name, lengths)) in
            sources.iter().enumerate().filter(|(_, (_, lengths))| count(lengths, bucket) > 0)
        {
            let documents = count(lengths, bucket);
            let height = plot_height * share(documents, highest);
            y -= height;
            let (color, x, width) = (source_color(index), x + step * 0.08, step * 0.84);
            let title = format!("{}: {} of {}", escape(name), format_grouped(documents), range(bucket));
            let _ = write!(
                svg,
                "<rect class=\"{color}\" x=\"{x:.1}\" y=\"{y:.2}\" width=\"{width:.1}\" height=\"{height:.2}\"><title>{title}</title></rect>"
            );
        }
        if (bucket - first).is_multiple_of(label_every) {
            let _ = write!(
                svg,
                "<text x=\"{x:.1}\" y=\"{}\">{}</text>",
                HEIGHT - 7.0,
                binary(Lengths::least(bucket))
            );
        }
    }
    svg + "</svg>"
}

/// Lines and labels at half and at full height.
fn grid(svg: &mut String, highest: u64) {
    for (part, label) in
        [(0.0, "0".to_string()), (0.5, format_count(highest / 2)), (1.0, format_count(highest))]
    {
        let y = HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
        let _ = write!(svg, "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y}\" y2=\"{y}\"/>");
        let _ = write!(svg, "<text class=\"end\" x=\"{}\" y=\"{:.1}\">{label}</text>", LEFT - 6.0, y + 4.0);
    }
}

/// The next round number whose half is round too: 2, 4, 6, 8, 10, 12, 16, 20, ...
fn round_up(count: u64) -> u64 {
    let mut unit = 1u64;
    loop {
        if let Some(round) = [2, 4, 6, 8, 10, 12, 16]
            .into_iter()
            .map(|step| unit.saturating_mul(step))
            .find(|round| *round >= count)
        {
            return round;
        }
        unit = unit.saturating_mul(10);
    }
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
