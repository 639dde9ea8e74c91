//! The page of a comparison: tables and plots in one file, light and dark, no script, nothing from the
//! network.

use std::fmt::Write;

use crate::pages::chart::Row;
use crate::pages::chart::Rows;
use crate::pages::columns::shortened;
use crate::pages::html;
use crate::pages::html::escape;
use crate::trials::comparison::report;
use crate::trials::comparison::report::NOTE;
use crate::trials::comparison::report::SEEDS_NOTE;
use crate::trials::comparison::report::number;
use crate::trials::comparison::result::RowKind;
use crate::trials::comparison::result::Scored;
use crate::trials::comparison::result::TaskResult;
use crate::trials::table::Table;

const STYLE: &str = include_str!("style.css");

/// Longer names are cut in plots: the tables have them whole.
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

/// A row for each model, a column for each task. Floors stand where all tasks have them.
fn overview(results: &[TaskResult]) -> Table {
    let mut names: Vec<&str> = Vec::new();
    for row in results.iter().flat_map(|result| &result.rows) {
        if !names.contains(&row.name.as_str()) {
            names.push(&row.name);
        }
    }
    let cell = |result: &TaskResult, name: &str| {
        let row = result.rows.iter().find(|row| row.name == name);
        row.map_or("-".to_string(), |row| row.mean_text(result.metric.factor()))
    };
    let row = |name: &&str| {
        let cells = results.iter().map(|result| cell(result, name));
        std::iter::once((*name).to_string()).chain(cells).collect()
    };
    let title = |result: &TaskResult| format!("{} ({})", result.name, result.metric.title());
    let header = std::iter::once("model".to_string()).chain(results.iter().map(title)).collect();
    Table { header, rows: names.iter().map(row).collect(), marked: None, names: 1 }
}

fn table(table: &Table, kinds: &[RowKind]) -> String {
    let mut html = "<div class=\"scroll\"><table>\n<thead><tr>".to_string();
    let class = |column: usize| if column < table.names { " class=\"name\"" } else { "" };
    for (column, title) in table.header.iter().enumerate() {
        let _ = write!(html, "<th scope=\"col\"{}>{}</th>", class(column), escape(title));
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
            let _ = write!(html, "<td{}>{dot}{}</td>", class(column), escape(cell));
        }
        html.push_str("</tr>\n");
    }
    html + "</tbody>\n</table></div>\n"
}

fn class_of(kind: RowKind) -> &'static str {
    match kind {
        RowKind::Model => "model",
        RowKind::Twin => "twin",
        RowKind::Floor => "floor",
    }
}

/// A line for each row: a dot for each seed, a stroke for the mean.
fn plot(result: &TaskResult) -> String {
    let factor = result.metric.factor();
    let row = |row: &Scored| Row {
        name: shortened(&row.name, NAME_CHARS),
        color: format!("var(--{})", class_of(row.kind)),
        values: (row.scores.iter().filter(|score| score.is_finite()))
            .map(|score| (score * factor, number(*score, factor)))
            .collect(),
        mean: row.mean.map(|mean| mean * factor),
    };
    let rows = result.rows.iter().map(row).collect();
    let chart = Rows { title: report::title(result), x: result.metric.title().to_string(), rows }.svg();
    if chart.is_empty() { chart } else { format!("<figure class=\"scroll\">{chart}</figure>\n") }
}
