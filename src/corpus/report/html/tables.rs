//! Tables that scroll sideways on a narrow screen instead of breaking it.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::corpus::report::Amount;
use crate::corpus::report::Report;
use crate::corpus::report::SourceTally;
use crate::corpus::report::html::color;
use crate::corpus::report::html::words;
use crate::corpus::report::sections::figure;
use crate::pages::html::escape;
use crate::quantity::format_bytes;
use crate::quantity::format_grouped;

/// Read, kept, and dropped for each reason, by source: reasons are rows, since there are more of them than
/// sources.
pub(super) fn sources(report: &Report) -> String {
    let all = report.sources.len() > 1;
    let cells = |of: &dyn Fn(&SourceTally) -> String, total: String| {
        // The total comes first, where a narrow screen shows it without scrolling.
        std::iter::once(total).filter(|_| all).chain(report.sources.iter().map(of)).collect()
    };
    let row = |name: &str, cells: Vec<String>| [vec![name.to_string()], cells].concat();
    let header = row("documents", cells(&|s| escape(&s.name), "all".to_string()));
    let mut rows = vec![
        row("read", cells(&|s| amount(s.read), amount(report.read))),
        row("<i class=\"dot kept\"></i>kept", cells(&|s| amount(s.kept), amount(report.kept))),
    ];
    for (index, (reason, total)) in report.reasons().into_iter().enumerate() {
        let name = format!("<i class=\"dot {}\"></i>{}", color(index), words(reason));
        let dropped = |s: &SourceTally| {
            s.dropped.get(reason).map_or("·".to_string(), |lost| format_grouped(lost.documents))
        };
        rows.push(row(&name, cells(&dropped, format_grouped(total.documents))));
    }
    table(&header, &rows, false)
}

/// Documents, and their bytes below them.
fn amount(amount: Amount) -> String {
    format!("{}<small>{}</small>", format_grouped(amount.documents), format_bytes(amount.bytes))
}

/// What cleaning did, over all sources.
pub(super) fn changes(report: &Report) -> String {
    let mut steps: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut add = |step, documents, count| {
        let held = steps.entry(step).or_default();
        *held = (held.0.saturating_add(documents), held.1.saturating_add(count));
    };
    for source in &report.sources {
        source.changes.iter().for_each(|(step, steps)| add(step, steps.documents, steps.count));
        add("invalid UTF-8 replaced", source.replaced.documents, source.replaced.count);
        add("cut because of its length", source.cut_documents, source.cut_documents);
    }
    steps.retain(|_, (documents, _)| *documents > 0);
    let mut rows: Vec<(&str, (u64, u64))> = steps.into_iter().collect();
    rows.sort_by_key(|(_, (documents, _))| std::cmp::Reverse(*documents));
    let row =
        |(step, (documents, count))| vec![words(step), format_grouped(documents), format_grouped(count)];
    let rows: Vec<Vec<String>> = rows.into_iter().map(row).collect();
    let header = ["step", "documents", "times"].map(str::to_string);
    if rows.is_empty() { String::new() } else { table(&header, &rows, false) }
}

/// How what is left was split, and what lies on the disk.
pub(super) fn shards(report: &Report) -> String {
    let header = ["split", "documents", "text"].map(str::to_string);
    let row = |name: &str, amount: Amount| {
        vec![name.to_string(), format_grouped(amount.documents), format_bytes(amount.bytes)]
    };
    let sides = table(
        &header,
        &[row("train", report.split.train), row("validation", report.split.validation)],
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

/// The figures of the tokenizer, as they were given.
pub(super) fn tokenizer(report: &Report) -> String {
    let Some(fertility) = &report.tokenizer else { return String::new() };
    let header: Vec<String> = std::iter::once("source".to_string())
        .chain(fertility.columns.iter().map(|name| words(name)))
        .collect();
    let figures = |values: &Vec<f64>| values.iter().copied().map(figure).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> =
        fertility.rows.iter().map(|(name, values)| [vec![escape(name)], figures(values)].concat()).collect();
    table(&header, &rows, false)
}

/// A table of cells that are HTML already; the first column names the row.
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
