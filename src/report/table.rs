//! HTML tables: one with a row for each fact and a column for each run, and a plain one. Wide tables scroll
//! by themselves on a narrow screen.

use std::fmt::Write;

use crate::pages::html::{breakable, escape};
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
}

/// Returns a table of the facts that at least one run has, or an empty text. Titles and cells are escaped.
pub(super) fn facts(runs: &[Run], facts: &[Fact]) -> String {
    let known: Vec<&Fact> = facts.iter().filter(|fact| fact.cells.iter().any(Option::is_some)).collect();
    if known.is_empty() {
        return String::new();
    }
    let mut html = "<div class=\"scroll\"><table class=\"facts\">\n".to_string();
    if runs.len() > 1 {
        html.push_str("<thead><tr><th></th>");
        for (index, run) in runs.iter().enumerate() {
            let _ = write!(html, "<th scope=\"col\">{}{}</th>", dot(index), breakable(&run.name));
        }
        html.push_str("</tr></thead>\n");
    }
    html.push_str("<tbody>\n");
    for fact in known {
        let _ = write!(html, "<tr><th scope=\"row\">{}</th>", breakable(&fact.title));
        for (index, cell) in fact.cells.iter().enumerate() {
            let class = if fact.best == Some(index) { " class=\"best\"" } else { "" };
            let text = cell.as_deref().map_or("<span class=\"muted\">–</span>".to_string(), escape);
            let _ = write!(html, "<td{class}>{text}</td>");
        }
        html.push_str("</tr>\n");
    }
    html + "</tbody>\n</table></div>\n"
}

/// Most rows of a table that are shown at once.
pub(super) const SHOWN: usize = 15;

/// Returns a table as [`plain`] does, of which only the first [`SHOWN`] rows are visible until the others are
/// unfolded.
pub(super) fn folded(header: &[&str], rows: &[Vec<String>]) -> String {
    if rows.len() <= SHOWN + 2 {
        return plain(header, rows);
    }
    let (first, others) = rows.split_at(SHOWN);
    [plain(header, first), hidden(others.len(), &plain(header, others))].concat()
}

/// Returns content that is folded until a reader opens it.
pub(super) fn hidden(rows: usize, content: &str) -> String {
    format!("<details>\n<summary><b>{rows} more</b></summary>\n{content}</details>\n")
}

/// Returns a table with a header. All cells are escaped; the first column contains names.
pub(super) fn plain(header: &[&str], rows: &[Vec<String>]) -> String {
    marked(header, rows, None)
}

/// Returns a table as [`plain`] does, with one row marked as the best.
pub(super) fn marked(header: &[&str], rows: &[Vec<String>], best: Option<usize>) -> String {
    let mut html = "<div class=\"scroll\"><table>\n<thead><tr>".to_string();
    for title in header {
        let _ = write!(html, "<th scope=\"col\">{}</th>", breakable(title));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for (index, row) in rows.iter().enumerate() {
        html.push_str(if best == Some(index) { "<tr class=\"best\">" } else { "<tr>" });
        for (column, cell) in row.iter().enumerate() {
            let (open, close) = if column == 0 { ("<th scope=\"row\">", "</th>") } else { ("<td>", "</td>") };
            let _ = write!(html, "{open}{}{close}", escape(cell));
        }
        html.push_str("</tr>\n");
    }
    html + "</tbody>\n</table></div>\n"
}

/// The coloured dot of run `index`.
pub(super) fn dot(index: usize) -> String {
    let again = if index < COLORS { "" } else { " again" };
    format!("<i class=\"dot s{}{again}\"></i>", color(index))
}

/// Number of the colour of run `index`; colours repeat, with another look, after [`COLORS`] runs.
pub(super) fn color(index: usize) -> usize {
    index % COLORS
}
