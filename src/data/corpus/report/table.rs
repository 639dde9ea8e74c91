//! The report for a terminal: aligned columns, at most 100 characters wide, no colours.
//!
//! Control characters in names are escaped, since names come from outside.

use crate::corpus::report::sections::{figure, share};
use crate::corpus::report::{Amount, Report, SourceTally};
use base::quantity::{format_bytes, format_grouped};

const WIDTH_MAX: usize = 100;

/// Limit on names: longer ones are cut, so that the other columns fit.
const NAME_CHARS_MAX: usize = 24;

pub(super) fn lines(report: &Report) -> Vec<String> {
    let mut lines = grid(&sources(report));
    if !report.dropped.is_empty() {
        lines.push(String::new());
        lines.extend(grid(&reasons(report)));
    }
    lines.push(String::new());
    lines.extend(grid(&sides(report)));
    if let Some(fertility) = &report.tokenizer {
        lines.push(String::new());
        let header = std::iter::once("tokenizer".to_string())
            .chain(fertility.columns.iter().map(|column| column.replace('_', " ")));
        let rows = fertility.rows.iter().map(|(name, values)| {
            std::iter::once(plain(name)).chain(values.iter().copied().map(figure)).collect()
        });
        lines.extend(grid(&std::iter::once(header.collect()).chain(rows).collect::<Vec<_>>()));
    }
    lines
}

fn sources(report: &Report) -> Vec<Vec<String>> {
    let header =
        ["source", "read", "bytes", "dropped", "kept", "bytes", "share"].map(str::to_string).to_vec();
    let mut rows = vec![header];
    rows.extend(report.sources.iter().map(|source| source_row(&source.name, source.read, source.kept)));
    if report.sources.len() > 1 {
        rows.push(source_row("all", report.read, report.kept));
    }
    rows
}

fn source_row(name: &str, read: Amount, kept: Amount) -> Vec<String> {
    let dropped = read.documents.saturating_sub(kept.documents);
    vec![
        plain(name),
        format_grouped(read.documents),
        format_bytes(read.bytes),
        format_grouped(dropped),
        format_grouped(kept.documents),
        format_bytes(kept.bytes),
        percent(kept.documents, read.documents),
    ]
}

/// Returns the reasons with documents and bytes, and with a column per source if all columns fit.
fn reasons(report: &Report) -> Vec<Vec<String>> {
    let sources = report.sources.as_slice();
    let full = reasons_by_source(report, if sources.len() > 1 { sources } else { &[] });
    if width(&widths(&full)) <= WIDTH_MAX { full } else { reasons_by_source(report, &[]) }
}

/// Returns the reasons with a column for each of `sources`.
fn reasons_by_source(report: &Report, sources: &[SourceTally]) -> Vec<Vec<String>> {
    let mut header = ["dropped because", "documents", "bytes", "of all"].map(str::to_string).to_vec();
    header.extend(sources.iter().map(|source| plain(&source.name)));
    let mut rows = vec![header];
    for (reason, amount) in report.reasons() {
        let all = percent(amount.documents, report.read.documents);
        let mut row = vec![plain(reason), format_grouped(amount.documents), format_bytes(amount.bytes), all];
        row.extend(
            sources.iter().map(|source| {
                format_grouped(source.dropped.get(reason).map_or(0, |amount| amount.documents))
            }),
        );
        rows.push(row);
    }
    rows
}

fn sides(report: &Report) -> Vec<Vec<String>> {
    let header = ["split", "documents", "bytes"].map(str::to_string).to_vec();
    let mut rows =
        vec![header, side("train", report.split.train), side("validation", report.split.validation)];
    if let Some(shards) = &report.shards {
        rows.push(vec!["tokens".to_string(), format_grouped(shards.tokens), String::new()]);
        rows.push(vec![
            "shards".to_string(),
            format!("{:.2} x text", shards.ratio()),
            format_bytes(shards.disk_bytes),
        ]);
    }
    rows
}

fn side(name: &str, amount: Amount) -> Vec<String> {
    vec![name.to_string(), format_grouped(amount.documents), format_bytes(amount.bytes)]
}

/// Formats rows as lines: the first column left-aligned, the others right-aligned, two spaces between them.
fn grid(rows: &[Vec<String>]) -> Vec<String> {
    let widths = widths(rows);
    let mut lines = Vec::with_capacity(rows.len());
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        let line: String = cells.collect::<Vec<_>>().join("  ");
        lines.push(line.trim_end().chars().take(WIDTH_MAX).collect());
    }
    lines
}

fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect()
}

fn width(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)
}

fn plain(name: &str) -> String {
    let escaped: String = name.escape_debug().collect();
    if escaped.chars().count() <= NAME_CHARS_MAX {
        return escaped;
    }
    escaped.chars().take(NAME_CHARS_MAX - 1).chain(std::iter::once('…')).collect()
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * share(part, whole))
}
