//! The page of a comparison: tables and plots in one file, light and dark, no script, nothing from the
//! network.

use std::fmt::Write;

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
use crate::trials::plot::Scale;
use crate::trials::table::Table;
use crate::trials::table::mean_and_deviation;

const STYLE: &str = include_str!("style.css");

/// Sizes of a plot, in units of about a pixel.
const WIDTH: f64 = 720.0;
const LEFT: f64 = 230.0;
const RIGHT: f64 = 30.0;
const ROW: f64 = 26.0;
const BOTTOM: f64 = 26.0;

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
        let mean = row.and_then(|row| row.mean).unwrap_or(f64::NAN);
        mean_and_deviation(mean, row.and_then(|row| row.std), result.metric.factor())
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
    let all: Vec<f64> = result.rows.iter().flat_map(|row| &row.scores).map(|score| score * factor).collect();
    let Some(scale) = Scale::around(&all, LEFT, WIDTH - RIGHT) else { return String::new() };
    let height = ROW * result.rows.len() as f64 + BOTTOM;
    let mut svg = format!("<figure><svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\">");
    for tick in scale.ticks() {
        let (x, bottom) = (scale.place(tick), height - BOTTOM);
        let _ = write!(svg, "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{bottom:.1}\"/>");
        let _ = write!(
            svg,
            "<text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            height - 8.0,
            scale.label(tick)
        );
    }
    for (index, row) in result.rows.iter().enumerate() {
        svg.push_str(&line(row, ROW * (index as f64 + 0.5), &scale, factor));
    }
    svg + "</svg></figure>\n"
}

fn line(row: &Scored, y: f64, scale: &Scale, factor: f64) -> String {
    let (name, class) = (shortened(&row.name, NAME_CHARS), class_of(row.kind));
    let mut svg =
        format!("<text class=\"row\" x=\"{}\" y=\"{:.1}\">{}</text>", LEFT - 14.0, y + 4.0, escape(&name));
    for score in &row.scores {
        let (x, title) = (scale.place(score * factor), number(*score, factor));
        let _ = write!(
            svg,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\"><title>{title}</title></circle>"
        );
    }
    if let Some(mean) = row.mean {
        let (x, from, to) = (scale.place(mean * factor), y - 8.5, y + 8.5);
        let _ = write!(
            svg,
            "<line class=\"mean {class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{from:.1}\" y2=\"{to:.1}\"/>"
        );
    }
    svg
}
