//! The report for a terminal: aligned columns, at most 100 wide, no colours.
//!
//! Names come from outside: control characters in them are escaped.

use crate::corpus::report::Amount;
use crate::corpus::report::Report;
use crate::corpus::report::sections::figure;
use crate::corpus::report::sections::share;
use crate::quantity::format_bytes;
use crate::quantity::format_grouped;

const WIDTH_MAX: usize = 100;

/// Longer names are cut, so that the columns behind them fit.
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
        let figures = |values: &Vec<f64>| values.iter().copied().map(figure).collect::<Vec<_>>();
        let rows = fertility.rows.iter().map(|(name, values)| [vec![plain(name)], figures(values)].concat());
        lines.extend(grid(&std::iter::once(header.collect()).chain(rows).collect::<Vec<_>>()));
    }
    lines
}

fn sources(report: &Report) -> Vec<Vec<String>> {
    let header =
        ["source", "read", "bytes", "dropped", "kept", "bytes", "share"].map(str::to_string).to_vec();
    let row = |name: &str, read: Amount, kept: Amount| {
        let dropped = read.documents.saturating_sub(kept.documents);
        let counts = [read.documents, dropped, kept.documents].map(format_grouped);
        let [read_documents, dropped, kept_documents] = counts;
        let share = percent(kept.documents, read.documents);
        vec![
            plain(name),
            read_documents,
            format_bytes(read.bytes),
            dropped,
            kept_documents,
            format_bytes(kept.bytes),
            share,
        ]
    };
    let mut rows = vec![header];
    rows.extend(report.sources.iter().map(|source| row(&source.name, source.read, source.kept)));
    if report.sources.len() > 1 {
        rows.push(row("all", report.read, report.kept));
    }
    rows
}

/// Reasons by documents and bytes, then a column for each source where all of them fit.
fn reasons(report: &Report) -> Vec<Vec<String>> {
    let with_sources = |with: bool| {
        let sources = if with { report.sources.as_slice() } else { &[] };
        let mut header = ["dropped because", "documents", "bytes", "of all"].map(str::to_string).to_vec();
        header.extend(sources.iter().map(|source| plain(&source.name)));
        let row = |(reason, amount): (&str, Amount)| {
            let all = percent(amount.documents, report.read.documents);
            let mut row =
                vec![plain(reason), format_grouped(amount.documents), format_bytes(amount.bytes), all];
            let documents = |dropped: Option<&Amount>| dropped.map_or(0, |amount| amount.documents);
            row.extend(sources.iter().map(|source| format_grouped(documents(source.dropped.get(reason)))));
            row
        };
        std::iter::once(header).chain(report.reasons().into_iter().map(row)).collect::<Vec<_>>()
    };
    let full = with_sources(report.sources.len() > 1);
    if width(&widths(&full)) <= WIDTH_MAX { full } else { with_sources(false) }
}

fn sides(report: &Report) -> Vec<Vec<String>> {
    let row = |name: &str, amount: Amount| {
        vec![name.to_string(), format_grouped(amount.documents), format_bytes(amount.bytes)]
    };
    let header = ["split", "documents", "bytes"].map(str::to_string).to_vec();
    let mut rows = vec![header, row("train", report.split.train), row("validation", report.split.validation)];
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

/// Rows as lines: the first column to the left, all others to the right, two spaces between.
fn grid(rows: &[Vec<String>]) -> Vec<String> {
    let widths = widths(rows);
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        let line: String = cells.collect::<Vec<_>>().join("  ");
        line.trim_end().chars().take(WIDTH_MAX).collect()
    };
    rows.iter().map(line).collect()
}

fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cells =
        |column: usize| rows.iter().filter_map(move |row| row.get(column)).map(|cell| cell.chars().count());
    (0..columns).map(|column| cells(column).max().unwrap_or(0)).collect()
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
