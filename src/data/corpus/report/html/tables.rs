//! Tables of the report. On a narrow screen they scroll sideways.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::corpus::report::html::{color, words};
use crate::corpus::report::sections::figure;
use crate::corpus::report::{Amount, Report, SourceTally};
use base::pages::html::escape;
use base::quantity::{format_bytes, format_grouped};

/// Returns the table of documents read, kept, and dropped for each reason, by source. Reasons are rows, since
/// they outnumber the sources.
pub(super) fn sources(report: &Report) -> String {
    let header = row("documents", cells(report, &|s| escape(&s.name), "all".to_string()));
    let mut rows = vec![
        row("read", cells(report, &|s| amount(s.read), amount(report.read))),
        row("<i class=\"dot kept\"></i>kept", cells(report, &|s| amount(s.kept), amount(report.kept))),
    ];
    for (index, (reason, total)) in report.reasons().into_iter().enumerate() {
        let name = format!("<i class=\"dot {}\"></i>{}", color(index), words(reason));
        let cells = cells(
            report,
            &|s| s.dropped.get(reason).map_or("·".to_string(), |lost| format_grouped(lost.documents)),
            format_grouped(total.documents),
        );
        rows.push(row(&name, cells));
    }
    table(&header, &rows, false)
}

/// Returns a cell for all sources together (if there are several) and one for each source.
fn cells(report: &Report, cell: &dyn Fn(&SourceTally) -> String, total: String) -> Vec<String> {
    let has_total = report.sources.len() > 1;
    // The total comes first, so that a narrow screen shows it without scrolling.
    std::iter::once(total).filter(|_| has_total).chain(report.sources.iter().map(cell)).collect()
}

fn row(name: &str, cells: Vec<String>) -> Vec<String> {
    [vec![name.to_string()], cells].concat()
}

/// Formats a number of documents, and their bytes below it.
fn amount(amount: Amount) -> String {
    format!("{}<small>{}</small>", format_grouped(amount.documents), format_bytes(amount.bytes))
}

/// Returns the table of changes by cleaning, over all sources; empty if nothing was changed.
pub(super) fn changes(report: &Report) -> String {
    let mut steps: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for source in &report.sources {
        for (step, counts) in &source.changes {
            add(&mut steps, step, counts.documents, counts.count);
        }
        add(&mut steps, "invalid UTF-8 replaced", source.replaced.documents, source.replaced.count);
        add(&mut steps, "cut because of its length", source.cut_documents, source.cut_documents);
    }
    steps.retain(|_, (documents, _)| *documents > 0);
    let mut rows: Vec<(&str, (u64, u64))> = steps.into_iter().collect();
    rows.sort_by_key(|(_, (documents, _))| std::cmp::Reverse(*documents));
    let mut cells = Vec::with_capacity(rows.len());
    for (step, (documents, count)) in rows {
        cells.push(vec![words(step), format_grouped(documents), format_grouped(count)]);
    }
    let header = ["step", "documents", "times"].map(str::to_string);
    if cells.is_empty() { String::new() } else { table(&header, &cells, false) }
}

fn add<'a>(steps: &mut BTreeMap<&'a str, (u64, u64)>, step: &'a str, documents: u64, count: u64) {
    let sums = steps.entry(step).or_default();
    *sums = (sums.0.saturating_add(documents), sums.1.saturating_add(count));
}

/// Returns the tables of the split and, if there are shards, of their tokens.
pub(super) fn shards(report: &Report) -> String {
    let header = ["split", "documents", "text"].map(str::to_string);
    let sides = table(
        &header,
        &[side("train", report.split.train), side("validation", report.split.validation)],
        false,
    );
    let Some(shards) = &report.shards else { return sides };
    let header = ["shards", "tokens"].map(str::to_string);
    let names = report.sources.iter().map(|source| escape(&source.name));
    let mut rows: Vec<Vec<String>> =
        names.zip(&shards.source_tokens).map(|(name, tokens)| vec![name, format_grouped(*tokens)]).collect();
    rows.push(vec!["all".to_string(), format_grouped(shards.tokens)]);
    let note = format!(
        "<p class=\"note\">{} on the disk: {:.2} bytes for each byte of text.</p>\n",
        format_bytes(shards.disk_bytes),
        shards.ratio()
    );
    format!(
        "<div class=\"pair\">\n<div>{sides}</div>\n<div>{}{note}</div>\n</div>\n",
        table(&header, &rows, true)
    )
}

fn side(name: &str, amount: Amount) -> Vec<String> {
    vec![name.to_string(), format_grouped(amount.documents), format_bytes(amount.bytes)]
}

/// Returns the table of the tokenizer's figures; empty if these were not measured.
pub(super) fn tokenizer(report: &Report) -> String {
    let Some(fertility) = &report.tokenizer else { return String::new() };
    let header: Vec<String> = std::iter::once("source".to_string())
        .chain(fertility.columns.iter().map(|name| words(name)))
        .collect();
    let mut rows = Vec::new();
    for (name, values) in &fertility.rows {
        let figures = values.iter().copied().map(figure);
        rows.push(std::iter::once(escape(name)).chain(figures).collect());
    }
    table(&header, &rows, false)
}

/// Returns a table of cells that are already HTML; the first column is the header of the row.
fn table(header: &[String], rows: &[Vec<String>], has_total: bool) -> String {
    let mut html = "<div class=\"scroll\"><table>\n<thead><tr>".to_string();
    for cell in header {
        html.push_str(&format_cell("th scope=\"col\"", cell));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for (index, row) in rows.iter().enumerate() {
        let is_total = has_total && index + 1 == rows.len();
        let _ = write!(
            html,
            "<tr{}><th scope=\"row\">{}</th>",
            if is_total { " class=\"total\"" } else { "" },
            row[0]
        );
        row[1..].iter().for_each(|cell| html.push_str(&format_cell("td", cell)));
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table></div>\n");
    html
}

fn format_cell(tag: &str, cell: &str) -> String {
    let name = tag.split(' ').next().unwrap_or(tag);
    format!("<{tag}>{cell}</{name}>")
}
