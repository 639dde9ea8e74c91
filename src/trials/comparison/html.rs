//! The HTML page of a comparison: tables and plots in one file with a light and a dark style. It has no
//! script and loads nothing from the network.

use std::fmt::Write;

use crate::pages::chart::{Row, Rows};
use crate::pages::columns::shortened;
use crate::pages::html;
use crate::pages::html::escape;
use crate::trials::comparison::report;
use crate::trials::comparison::report::{NOTE, SEEDS_NOTE, number};
use crate::trials::comparison::result::{RowKind, TaskResult};
use crate::trials::table::Table;

const STYLE: &str = include_str!("style.css");

/// Characters of a model name in plots; the tables show the whole name.
const NAME_CHARS: usize = 30;

pub(super) fn page(results: &[TaskResult]) -> String {
    let mut main = format!(
        "<h1>Comparison of models</h1>\n<p class=\"note\">{NOTE}.</p>\n<p class=\"note\">{SEEDS_NOTE}.</p>\n"
    );
    if results.len() > 1 {
        main.push_str(&html::section("All tasks", &table(&overview(results), &[])));
    }
    for result in results {
        let kinds: Vec<RowKind> = result.rows.iter().map(|row| row.kind).collect();
        let scores = table(&report::scores(result), &kinds);
        let pairs = table(&report::pairs(&result.pairs, result.metric.factor()), &[]);
        main.push_str(&html::section(&report::title(result), &format!("{}{scores}{pairs}", plot(result))));
    }
    html::page("Comparison of models", STYLE, &main)
}

/// Returns the table of means with a row for each model and floor, and a column for each task; `-` if a task
/// has no such row.
fn overview(results: &[TaskResult]) -> Table {
    let mut names: Vec<&str> = Vec::new();
    for row in results.iter().flat_map(|result| &result.rows) {
        if !names.contains(&row.name.as_str()) {
            names.push(&row.name);
        }
    }
    let header = std::iter::once("model".to_string())
        .chain(results.iter().map(|result| format!("{} ({})", result.name, result.metric.title())))
        .collect();
    Table {
        header,
        rows: names
            .iter()
            .map(|name| {
                let cells = results.iter().map(|result| mean_cell(result, name));
                std::iter::once((*name).to_string()).chain(cells).collect()
            })
            .collect(),
        marked: None,
        names: 1,
    }
}

/// The mean of the row called `name`, or `-` if this task has no such row.
fn mean_cell(result: &TaskResult, name: &str) -> String {
    let row = result.rows.iter().find(|row| row.name == name);
    row.map_or("-".to_string(), |row| row.mean_text(result.metric.factor()))
}

/// Renders a table as HTML. `kinds` gives each row a coloured dot; it is empty for tables without dots.
fn table(table: &Table, kinds: &[RowKind]) -> String {
    let mut html = "<div class=\"scroll\"><table>\n<thead><tr>".to_string();
    for (column, title) in table.header.iter().enumerate() {
        let _ = write!(html, "<th scope=\"col\"{}>{}</th>", column_class(table, column), escape(title));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for (index, row) in table.rows.iter().enumerate() {
        let is_best = if table.marked == Some(index) { " class=\"best\"" } else { "" };
        let _ = write!(html, "<tr{is_best}>");
        for (column, cell) in row.iter().enumerate() {
            let dot = match kinds.get(index) {
                Some(kind) if column == 0 => format!("<i class=\"dot {}\"></i>", class_of(*kind)),
                _ => String::new(),
            };
            let _ = write!(html, "<td{}>{dot}{}</td>", column_class(table, column), escape(cell));
        }
        html.push_str("</tr>\n");
    }
    html + "</tbody>\n</table></div>\n"
}

fn column_class(table: &Table, column: usize) -> &'static str {
    if column < table.names { " class=\"name\"" } else { "" }
}

fn class_of(kind: RowKind) -> &'static str {
    match kind {
        RowKind::Model => "model",
        RowKind::Twin => "twin",
        RowKind::Floor => "floor",
    }
}

/// Returns the plot of one task: a line for each row, a dot for each seed, a stroke for the mean.
fn plot(result: &TaskResult) -> String {
    let factor = result.metric.factor();
    let rows = result
        .rows
        .iter()
        .map(|row| Row {
            name: shortened(&row.name, NAME_CHARS),
            color: format!("var(--{})", class_of(row.kind)),
            values: (row.scores.iter().filter(|score| score.is_finite()))
                .map(|score| (score * factor, number(*score, factor)))
                .collect(),
            mean: row.mean.map(|mean| mean * factor),
        })
        .collect();
    let chart = Rows { title: report::title(result), x: result.metric.title().to_string(), rows }.svg();
    if chart.is_empty() { chart } else { format!("<figure class=\"scroll\">{chart}</figure>\n") }
}
