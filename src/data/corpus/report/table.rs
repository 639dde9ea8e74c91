//! The report for a terminal: aligned columns, at most 100 characters wide, no colours.
//!
//! Control characters in names are escaped, since names come from outside.

use crate::corpus::report::sections::{figure, share};
use crate::corpus::report::{Amount, Report, SourceTally};
use base::pages::columns::{shortened, width};
use base::pages::table::{Row, Table};
use base::quantity::{format_bytes, format_grouped};

const WIDTH_MAX: usize = 100;

/// Limit on names: longer ones are cut, so that the other columns fit.
const NAME_CHARS_MAX: usize = 24;

pub(super) fn lines(report: &Report) -> Vec<String> {
    let mut tables = vec![sources(report).lines()];
    tables.extend((!report.dropped.is_empty()).then(|| reasons(report)));
    tables.push(sides(report).lines());
    tables.extend(report.tokenizer.as_ref().map(|fertility| {
        let columns = fertility.columns.iter().map(|column| column.replace('_', " "));
        let rows = fertility.rows.iter().map(|(name, values)| {
            std::iter::once(plain(name)).chain(values.iter().copied().map(figure)).collect()
        });
        Table::new(std::iter::once("tokenizer".to_string()).chain(columns), rows.collect()).lines()
    }));
    let lines = tables.join(&String::new());
    lines.into_iter().map(|line| line.chars().take(WIDTH_MAX).collect()).collect()
}

fn sources(report: &Report) -> Table {
    let mut rows: Vec<Row> =
        report.sources.iter().map(|source| source_row(&source.name, source.read, source.kept)).collect();
    if rows.len() > 1 {
        rows.push(source_row("all", report.read, report.kept));
    }
    Table::new(["source", "read", "bytes", "dropped", "kept", "bytes", "share"], rows)
}

fn source_row(name: &str, read: Amount, kept: Amount) -> Row {
    let dropped = read.documents.saturating_sub(kept.documents);
    let cells = [
        plain(name),
        format_grouped(read.documents),
        format_bytes(read.bytes),
        format_grouped(dropped),
        format_grouped(kept.documents),
        format_bytes(kept.bytes),
        percent(kept.documents, read.documents),
    ];
    cells.into_iter().collect()
}

/// Returns the lines of the reasons with documents and bytes, and with a column per source if all columns fit.
fn reasons(report: &Report) -> Vec<String> {
    let sources = report.sources.as_slice();
    let full = reasons_by_source(report, if sources.len() > 1 { sources } else { &[] }).lines();
    let fits = full.iter().all(|line| width(line) <= WIDTH_MAX);
    if fits { full } else { reasons_by_source(report, &[]).lines() }
}

/// Returns the reasons with a column for each of `sources`.
fn reasons_by_source(report: &Report, sources: &[SourceTally]) -> Table {
    let rows = report.reasons().into_iter().map(|(reason, amount)| {
        let all = percent(amount.documents, report.read.documents);
        let cells = [plain(reason), format_grouped(amount.documents), format_bytes(amount.bytes), all];
        let by_source = sources
            .iter()
            .map(|source| format_grouped(source.dropped.get(reason).map_or(0, |amount| amount.documents)));
        cells.into_iter().chain(by_source).collect()
    });
    let header = ["dropped because", "documents", "bytes", "of all"].map(str::to_string);
    Table::new(header.into_iter().chain(sources.iter().map(|source| plain(&source.name))), rows.collect())
}

fn sides(report: &Report) -> Table {
    let mut rows = vec![side("train", report.split.train), side("validation", report.split.validation)];
    if let Some(shards) = &report.shards {
        rows.push(["tokens".to_string(), format_grouped(shards.tokens), String::new()].into_iter().collect());
        let ratio = format!("{:.2} x text", shards.ratio());
        rows.push(["shards".to_string(), ratio, format_bytes(shards.disk_bytes)].into_iter().collect());
    }
    Table::new(["split", "documents", "bytes"], rows)
}

fn side(name: &str, amount: Amount) -> Row {
    [name.to_string(), format_grouped(amount.documents), format_bytes(amount.bytes)].into_iter().collect()
}

fn plain(name: &str) -> String {
    let escaped: String = name.escape_debug().collect();
    shortened(&escaped, NAME_CHARS_MAX)
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * share(part, whole))
}
