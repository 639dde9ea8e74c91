//! The HTML page of a comparison: tables and plots in one file with a light and a dark style. It has no
//! script and loads nothing from the network.

use std::fmt::Write;

use crate::trials::comparison::result::{RowKind, TaskResult};
use crate::trials::comparison::tables;
use crate::trials::comparison::tables::{NOTE, SEEDS_NOTE, number};
use crate::trials::table::Table;
use base::pages::chart::{Row, Rows};
use base::pages::html;
use base::pages::html::{breakable, escape};
use base::scores::Metric;

/// Explanation of `more examples` in the column `seeds needed`.
const MORE: &str = "“more examples”: no number of seeds would make the difference clear";

const STYLE: &str = include_str!("style.css");

pub(super) fn page(results: &[TaskResult]) -> String {
    let mut main = heading("Comparison of models", &[NOTE, &format!("{SEEDS_NOTE}; {MORE}")]);
    let kinds: Vec<RowKind> = results.iter().flat_map(|result| &result.rows).map(|row| row.kind).collect();
    main.push_str(&legend(&kinds));
    if results.len() > 1 {
        main.push_str(&html::section("All tasks", &table(&overview(results), &[])));
    }
    for result in results {
        let kinds: Vec<RowKind> = result.rows.iter().map(|row| row.kind).collect();
        let scores = table(&tables::scores(result, " · "), &kinds);
        let pairs = pairs(&tables::pairs(&result.pairs, result.metric.factor()));
        let verdict = paragraph(&verdict(result));
        let strips = result.rows.iter().map(|row| Strip {
            name: &row.name,
            kind: row.kind,
            scores: row.scores.clone(),
            mean: row.mean,
        });
        let plot = plot(tables::title(result), result.metric, strips.collect());
        let content = format!("{verdict}{plot}{scores}{pairs}");
        main.push_str(&html::section(&tables::title(result), &content));
    }
    whole("Comparison of models", &main)
}

/// The heading of a page, with notes as sentences.
pub(super) fn heading(title: &str, notes: &[&str]) -> String {
    let notes: String = notes.iter().map(|text| note(text)).collect();
    format!("<h1>{}</h1>\n{notes}", escape(title))
}

/// A note as a paragraph.
pub(super) fn note(text: &str) -> String {
    format!("<p class=\"note\">{}.</p>\n", escape(text))
}

/// The whole page around its content.
pub(super) fn whole(title: &str, main: &str) -> String {
    html::page(title, STYLE, &format!("{main}{}", html::footer("from the predictions of all models")))
}

/// Returns a sentence as a paragraph, and nothing for an empty one.
fn paragraph(sentence: &str) -> String {
    if sentence.is_empty() { String::new() } else { format!("<p class=\"lead\">{}</p>\n", escape(sentence)) }
}

/// The result of a task in a sentence: the clear differences between the models that the user named.
fn verdict(result: &TaskResult) -> String {
    let clear = result.pairs.iter().filter(|pair| pair.of_models).filter_map(|pair| {
        let better = pair.better.as_ref()?;
        let other = if *better == pair.left { &pair.right } else { &pair.left };
        Some(format!("{better} is clearly better than {other}."))
    });
    let clear: Vec<String> = clear.collect();
    match clear.as_slice() {
        [] if result.pairs.iter().any(|pair| pair.of_models) => {
            "No difference between the models is clear.".to_string()
        }
        clear => clear.join(" "),
    }
}

/// The legend of these kinds of rows.
pub(super) fn legend(rows: &[RowKind]) -> String {
    let kinds = [
        (RowKind::Model, "model"),
        (RowKind::Twin, "same architecture, untrained"),
        (RowKind::Floor, "without a network"),
        (RowKind::Published, "published"),
    ];
    let mut html = "<ul class=\"legend\">\n".to_string();
    for (kind, text) in kinds.iter().filter(|(kind, _)| rows.contains(kind)) {
        let _ = writeln!(html, "<li><i class=\"dot {}\"></i>{text}</li>", class_of(*kind));
    }
    html + "</ul>\n"
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
pub(super) fn table(table: &Table, kinds: &[RowKind]) -> String {
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
            let (open, close) = if column == 0 { ("th scope=\"row\"", "th") } else { ("td", "td") };
            let class = column_class(table, column);
            let _ = write!(html, "<{open}{class}>{dot}{}</{close}>", breakable_at(cell, column));
        }
        html.push_str("</tr>\n");
    }
    html + "</tbody>\n</table></div>\n"
}

/// The table of differences. The first model of each pair is a heading above all pairs that it is in.
fn pairs(table: &Table) -> String {
    let (Some(titles), false) = (table.header.get(1..), table.rows.is_empty()) else { return String::new() };
    let mut html = "<div class=\"scroll\"><table class=\"pairs\">\n<thead><tr>".to_string();
    for title in titles {
        let _ = write!(html, "<th scope=\"col\">{}</th>", escape(title));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    let mut model = None;
    for row in &table.rows {
        let Some((left, cells)) = row.split_first() else { continue };
        if model != Some(left) {
            let span = titles.len();
            let name = breakable(left);
            let _ = writeln!(
                html,
                "<tr><th class=\"group\" scope=\"rowgroup\" colspan=\"{span}\">{name}</th></tr>"
            );
            model = Some(left);
        }
        html.push_str("<tr>");
        for (column, cell) in cells.iter().enumerate() {
            let (open, close) = if column == 0 { ("th scope=\"row\"", "th") } else { ("td", "td") };
            let _ = write!(html, "<{open}>{}</{close}>", breakable_at(cell, column));
        }
        html.push_str("</tr>\n");
    }
    html + "</tbody>\n</table></div>\n"
}

/// Escapes a cell; names, in the first column, may break between their words.
fn breakable_at(cell: &str, column: usize) -> String {
    if column == 0 { breakable(cell) } else { escape(cell) }
}

fn column_class(table: &Table, column: usize) -> &'static str {
    if column < table.names { " class=\"name\"" } else { "" }
}

fn class_of(kind: RowKind) -> &'static str {
    match kind {
        RowKind::Model => "model",
        RowKind::Twin => "twin",
        RowKind::Floor => "floor",
        RowKind::Published => "published",
    }
}

/// The scores of one row in a plot, as shares.
pub(super) struct Strip<'a> {
    pub(super) name: &'a str,
    pub(super) kind: RowKind,
    /// The score with each seed.
    pub(super) scores: Vec<f64>,
    pub(super) mean: Option<f64>,
}

/// Returns the plot of one task: a strip for each row, with a dot for each seed and a stroke for the mean.
pub(super) fn plot(title: String, metric: Metric, strips: Vec<Strip<'_>>) -> String {
    let factor = metric.factor();
    let rows = strips
        .into_iter()
        .map(|strip| Row {
            name: strip.name.to_string(),
            color: format!("var(--{})", class_of(strip.kind)),
            values: (strip.scores.iter().filter(|score| score.is_finite()))
                .map(|score| (score * factor, number(*score, factor)))
                .collect(),
            mean: strip.mean.map(|mean| mean * factor),
        })
        .collect();
    let percent = if factor > 1.0 { " %" } else { "" };
    Rows { title, x: format!("{}{percent}", metric.title()), rows }.html()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trials::comparison::result::{Pair, Scored};
    use base::scores::{Difference, SeedsNeeded};

    #[test]
    fn a_page_has_a_verdict_a_strip_for_each_row_and_pairs_below_their_model() {
        let rows = vec![
            row("ours_base <1>", RowKind::Model, &[0.75, 0.8]),
            row("theirs", RowKind::Model, &[0.7, 0.72]),
            row("random twin of theirs", RowKind::Twin, &[0.4, f64::NAN]),
            row("TF-IDF", RowKind::Floor, &[0.5]),
        ];
        let pairs = vec![
            pair("ours_base <1>", "theirs", true, 0.01),
            pair("ours_base <1>", "TF-IDF", false, 0.2),
            pair("theirs", "TF-IDF", false, -0.1),
        ];
        let result = TaskResult {
            name: "topics".to_string(),
            metric: Metric::Accuracy,
            examples: 24,
            seeds: vec![1, 2],
            rows,
            pairs,
        };
        let page = page(&[result.clone(), result.clone()]);
        for text in [
            "ours_base &lt;1&gt; is clearly better than theirs.",
            "<i class=\"dot floor\"></i>without a network",
            "scope=\"rowgroup\" colspan=\"6\">ours_<wbr>base &lt;1&gt;</th>",
            "<td>75.00 · 80.00</td>",
            "accuracy %</span>",
            "Made by mlmtrain",
        ] {
            assert!(page.contains(text), "{text}: {page}");
        }
        assert_eq!(page.matches("<th class=\"group\"").count(), 4, "two models in each of two tasks");
        assert!(!page.contains("NaN"), "{page}");
        let unclear = TaskResult { pairs: vec![pair("ours_base <1>", "theirs", true, -0.01)], ..result };
        assert_eq!(verdict(&unclear), "No difference between the models is clear.");
        assert_eq!(verdict(&TaskResult { pairs: Vec::new(), ..unclear }), "");
    }

    fn row(name: &str, kind: RowKind, scores: &[f64]) -> Scored {
        let mean = scores.first().copied();
        Scored { name: name.to_string(), kind, scores: scores.to_vec(), mean, std: None, diverged: 0 }
    }

    /// A pair whose left model is better by `low` at least; the difference is clear if that is positive.
    fn pair(left: &str, right: &str, of_models: bool, low: f64) -> Pair {
        let difference = Difference {
            difference: 0.05,
            low,
            high: 0.3,
            standard_error: 0.02,
            p_value: 0.01,
            seeds_needed: SeedsNeeded::MoreExamples,
        };
        let better = (low > 0.0).then(|| left.to_string());
        Pair { left: left.to_string(), right: right.to_string(), of_models, difference, better }
    }
}
