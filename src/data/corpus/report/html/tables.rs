//! Tables of the page.

use std::collections::BTreeMap;

use crate::corpus::report::html::{color, words};
use crate::corpus::report::sections::figure;
use crate::corpus::report::{Amount, Report, SourceTally};
use base::pages::report::Block;
use base::pages::table::{Row, RowKind, Table};
use base::pages::text::{Part, Text};
use base::quantity::{format_bytes, format_grouped};

/// Returns the table of documents read, kept, and dropped for each reason, by source. Reasons are rows, since
/// they outnumber the sources.
pub(super) fn sources(report: &Report) -> Table {
    let header = row("documents".into(), cells(report, &|s| Text::from(s.name.as_str()), "all".into()));
    let mut rows = vec![
        row("read".into(), cells(report, &|s| amount(s.read), amount(report.read))),
        row(Text::from("kept").after_dot("kept"), cells(report, &|s| amount(s.kept), amount(report.kept))),
    ];
    for (index, (reason, total)) in report.reasons().into_iter().enumerate() {
        let name = Text::from(words(reason)).after_dot(&color(index));
        let cells = cells(
            report,
            &|s| s.dropped.get(reason).map_or("·".into(), |lost| format_grouped(lost.documents).into()),
            format_grouped(total.documents).into(),
        );
        rows.push(row(name, cells));
    }
    Table::new(header.cells, rows)
}

/// Returns a cell for all sources together (if there are several) and one for each source.
fn cells(report: &Report, cell: &dyn Fn(&SourceTally) -> Text, total: Text) -> Vec<Text> {
    let has_total = report.sources.len() > 1;
    // The total comes first, so that a narrow screen shows it without scrolling.
    std::iter::once(total).filter(|_| has_total).chain(report.sources.iter().map(cell)).collect()
}

fn row(name: Text, cells: Vec<Text>) -> Row {
    std::iter::once(name).chain(cells).collect()
}

/// A number of documents, and their bytes below it.
fn amount(amount: Amount) -> Text {
    Text::from(format_grouped(amount.documents)).with(Part::Small(format_bytes(amount.bytes)))
}

/// Returns the table of changes by cleaning, over all sources; without rows if nothing was changed.
pub(super) fn changes(report: &Report) -> Table {
    let mut steps: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for source in &report.sources {
        for (step, counts) in &source.changes {
            add(&mut steps, step, counts.documents, counts.count);
        }
        add(&mut steps, "invalid UTF-8 replaced", source.replaced.documents, source.replaced.count);
        add(&mut steps, "cut because of its length", source.cut_documents, source.cut_documents);
    }
    steps.retain(|_, (documents, _)| *documents > 0);
    let mut steps: Vec<(&str, (u64, u64))> = steps.into_iter().collect();
    steps.sort_by_key(|(_, (documents, _))| std::cmp::Reverse(*documents));
    let rows = steps.into_iter().map(|(step, (documents, count))| {
        [words(step), format_grouped(documents), format_grouped(count)].into_iter().collect()
    });
    Table::new(["step", "documents", "times"], rows.collect())
}

fn add<'a>(steps: &mut BTreeMap<&'a str, (u64, u64)>, step: &'a str, documents: u64, count: u64) {
    let sums = steps.entry(step).or_default();
    *sums = (sums.0.saturating_add(documents), sums.1.saturating_add(count));
}

/// Returns the tables of the split and, if there are shards, of their tokens.
pub(super) fn shards(report: &Report) -> Block {
    let sides = vec![side("train", report.split.train), side("validation", report.split.validation)];
    let sides = Block::Table(Table::new(["split", "documents", "text"], sides));
    let Some(shards) = &report.shards else { return sides };
    let names = report.sources.iter().map(|source| source.name.clone());
    let mut rows: Vec<Row> = names
        .zip(&shards.source_tokens)
        .map(|(name, tokens)| [name, format_grouped(*tokens)].into_iter().collect())
        .collect();
    let all = ["all".to_string(), format_grouped(shards.tokens)].into_iter().collect::<Row>();
    rows.push(Row { kind: RowKind::Total, ..all });
    let note = format!(
        "{} on the disk: {:.2} bytes for each byte of text.",
        format_bytes(shards.disk_bytes),
        shards.ratio()
    );
    let tokens = vec![Block::Table(Table::new(["shards", "tokens"], rows)), Block::note(note)];
    Block::Beside(vec![vec![sides], tokens])
}

fn side(name: &str, amount: Amount) -> Row {
    [name.to_string(), format_grouped(amount.documents), format_bytes(amount.bytes)].into_iter().collect()
}

/// Returns the table of the tokenizer's figures; without rows if these were not measured.
pub(super) fn tokenizer(report: &Report) -> Table {
    let Some(fertility) = &report.tokenizer else { return Table::default() };
    let rows = fertility.rows.iter().map(|(name, values)| {
        std::iter::once(name.clone()).chain(values.iter().copied().map(figure)).collect()
    });
    let columns = fertility.columns.iter().map(|name| words(name));
    Table::new(std::iter::once("source".to_string()).chain(columns), rows.collect())
}
