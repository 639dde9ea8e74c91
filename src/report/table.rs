//! Tables with a row for each fact and a column for each run, and tables of which only the first rows are
//! shown at once.

use crate::pages::report::Block;
use crate::pages::table::{Cell, Row, Table};
use crate::pages::text::{Part, Text};
use crate::report::run::Run;

/// Number of colours of runs.
pub(super) const COLORS: usize = 8;

/// One row of a table: a title, and a cell for each run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fact {
    pub(super) title: String,
    /// The text for each run, in the order of the runs; `None` if the run did not record the value.
    pub(super) cells: Vec<Option<String>>,
    /// Index of the run with the best value.
    pub(super) best: Option<usize>,
}

impl Fact {
    /// Returns a row with the cell `text` of each run.
    pub(super) fn new(title: &str, runs: &[Run], text: impl Fn(&Run) -> Option<String>) -> Self {
        Self { title: title.to_string(), cells: runs.iter().map(text).collect(), best: None }
    }

    fn row(&self) -> Row {
        let cells = self.cells.iter().enumerate().map(|(index, cell)| {
            let text = match cell {
                Some(text) => Text::from(text.as_str()),
                None => Text(vec![Part::Muted("–".to_string())]),
            };
            Cell { class: if self.best == Some(index) { "best" } else { "" }, ..Cell::from(text) }
        });
        std::iter::once(Cell::from(Text::name(&self.title))).chain(cells).collect()
    }
}

/// Returns a table of the facts that at least one run has.
pub(super) fn facts(runs: &[Run], facts: &[Fact]) -> Block {
    let known = facts.iter().filter(|fact| fact.cells.iter().any(Option::is_some));
    let names = runs.iter().enumerate().map(|(index, run)| Text::name(&run.name).after_dot(&dot(index)));
    let header: Vec<Text> =
        if runs.len() > 1 { std::iter::once(Text::default()).chain(names).collect() } else { Vec::new() };
    Block::Table(Table { class: "facts", ..Table::new(header, known.map(Fact::row).collect()) })
}

/// Most rows of a table that are shown at once.
pub(super) const SHOWN: usize = 15;

/// Returns a table of which only the first [`SHOWN`] rows are visible until the others are unfolded.
pub(super) fn folded(header: &[&str], mut rows: Vec<Row>) -> Vec<Block> {
    if rows.len() <= SHOWN + 2 {
        return vec![titled(header, rows)];
    }
    let others = rows.split_off(SHOWN);
    vec![titled(header, rows), hidden(others.len(), titled(header, others))]
}

fn titled(header: &[&str], rows: Vec<Row>) -> Block {
    Block::Table(Table::new(header.iter().map(|title| Text::name(title)), rows))
}

/// Returns a block that is folded until a reader opens it.
pub(super) fn hidden(rows: usize, block: Block) -> Block {
    let summary = Text(vec![Part::Bold(format!("{rows} more"))]);
    Block::Folded { summary, is_open: false, blocks: vec![block] }
}

/// The CSS class of the dot of run `index`.
pub(super) fn dot(index: usize) -> String {
    let again = if index < COLORS { "" } else { " again" };
    format!("s{}{again}", color(index))
}

/// Number of the colour of run `index`; colours repeat, with another look, after [`COLORS`] runs.
pub(super) fn color(index: usize) -> usize {
    index % COLORS
}
