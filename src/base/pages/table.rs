//! A table for a terminal, Markdown and a page.

use crate::pages::columns::{aligned, folded, width};
use crate::pages::html::{attribute, element};
use crate::pages::text::Text;

/// Widest line of a table on a terminal. The titles of a wider table are folded.
const WIDEST: usize = 80;

/// Rows below a header. The first cell of a row is its name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    /// Titles of the columns; empty for a table without any.
    pub header: Vec<Cell>,
    /// Rows from top to bottom.
    pub rows: Vec<Row>,
    /// Number of columns at the left that contain names, not numbers.
    pub names: usize,
    /// CSS class; may be empty.
    pub class: &'static str,
    /// True if a page shows the first column as headings above the rows that share it.
    pub is_grouped: bool,
}

/// A row of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row {
    /// Cells, as many as the header has.
    pub cells: Vec<Cell>,
    /// Role among the other rows.
    pub kind: RowKind,
}

/// Role of a row among the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RowKind {
    /// A row as any other.
    #[default]
    Plain,
    /// The marked one, such as the best.
    Best,
    /// The sum of the others.
    Total,
}

/// A cell of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cell {
    /// Content of the cell.
    pub text: Text,
    /// CSS class; may be empty.
    pub class: &'static str,
    /// Text of the tooltip; may be empty.
    pub hint: String,
    /// Percentage that the background of the cell shows.
    pub percent: Option<f64>,
}

impl<T: Into<Text>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

impl<C: Into<Cell>> FromIterator<C> for Row {
    fn from_iter<I: IntoIterator<Item = C>>(cells: I) -> Self {
        Self { cells: cells.into_iter().map(Into::into).collect(), kind: RowKind::Plain }
    }
}

impl Table {
    /// Returns a table whose first column contains names and all others numbers.
    pub fn new<H: Into<Cell>>(header: impl IntoIterator<Item = H>, rows: Vec<Row>) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), rows, names: 1, ..Self::default() }
    }

    /// Marks the row with this index as the best.
    #[must_use]
    pub fn with_best(mut self, index: Option<usize>) -> Self {
        if let Some(row) = index.and_then(|index| self.rows.get_mut(index)) {
            row.kind = RowKind::Best;
        }
        self
    }

    /// Returns aligned lines for a terminal; the best row begins with `*`.
    pub fn lines(&self) -> Vec<String> {
        let best = self.rows.iter().position(|row| row.kind == RowKind::Best);
        let mut all: Vec<Vec<String>> = self.all_cells(Text::words);
        let mut lines = aligned(&all, self.names);
        let mut title_lines = 1;
        if lines.iter().any(|line| width(line) > WIDEST) {
            let titles = folded_titles(&all);
            title_lines = titles.len();
            all.splice(..1, titles);
            lines = aligned(&all, self.names);
        }
        let lines = lines.into_iter().enumerate().map(|(index, line)| {
            let marker = match best {
                None => "",
                Some(best) if index == best + title_lines => "* ",
                Some(_) => "  ",
            };
            format!("{marker}{line}").trim_end().to_string()
        });
        lines.collect()
    }

    /// Returns the table in GitHub's Markdown with the best row in bold. The text ends in a newline.
    pub fn markdown(&self) -> String {
        let mut lines = self.all_cells(Text::markdown);
        for (row, cells) in self.rows.iter().zip(&mut lines[1..]) {
            if row.kind == RowKind::Best {
                cells
                    .iter_mut()
                    .filter(|cell| !cell.is_empty())
                    .for_each(|cell| *cell = format!("**{cell}**"));
            }
        }
        let rules = (0..self.header.len()).map(|column| if column < self.names { "---" } else { "---:" });
        lines.insert(1, rules.map(str::to_string).collect());
        let lines: Vec<String> = lines.iter().map(|cells| format!("| {} |\n", cells.join(" | "))).collect();
        lines.concat()
    }

    /// The cells of the header and of all rows.
    fn all_cells(&self, text: fn(&Text) -> String) -> Vec<Vec<String>> {
        let rows = self.rows.iter().map(|row| &row.cells);
        let all = std::iter::once(&self.header).chain(rows);
        all.map(|cells| cells.iter().map(|cell| text(&cell.text)).collect()).collect()
    }

    /// Returns the table as HTML. A wide one scrolls on a narrow screen.
    pub fn html(&self) -> String {
        let mut head = self.cells_html(&self.header, "th scope=\"col\"", "th scope=\"col\"");
        if !head.is_empty() {
            head = element("thead", "", &element("tr", "", &head));
        }
        let mut rows = String::new();
        let mut group = None;
        for row in &self.rows {
            let heading = row.cells.first().filter(|_| self.is_grouped);
            if let Some(heading) = heading.filter(|heading| group != Some(*heading)) {
                let columns = self.header.len() - 1;
                let title = format!(
                    "<th class=\"group\" scope=\"rowgroup\" colspan=\"{columns}\">{}</th>",
                    heading.text.html()
                );
                rows.push_str(&element("tr", "", &title));
                group = Some(heading);
            }
            let class = match row.kind {
                RowKind::Plain => "",
                RowKind::Best => "best",
                RowKind::Total => "total",
            };
            let cells = self.cells_html(&row.cells, "th scope=\"row\"", "td");
            rows.push_str(&element("tr", &attribute("class", class), &cells));
        }
        let body = element("tbody", "", &rows);
        let table = element("table", &attribute("class", self.class), &(head + &body));
        element("div", &attribute("class", "scroll"), &table)
    }

    /// Returns the cells of a row; the first one has the tag `first`.
    fn cells_html(&self, cells: &[Cell], first: &str, others: &str) -> String {
        let from = usize::from(self.is_grouped);
        let cells = cells.iter().enumerate().skip(from);
        cells
            .map(|(column, cell)| self.cell_html(cell, column, if column == from { first } else { others }))
            .collect()
    }

    fn cell_html(&self, cell: &Cell, column: usize, tag: &str) -> String {
        // Style sheets know the first column without a class.
        let is_name = column > 0 && column < self.names;
        let class = attribute("class", if is_name { "name" } else { cell.class });
        let hint = attribute("title", &cell.hint);
        let percent = cell.percent.map_or(String::new(), |percent| format!("--share:{percent:.0}%"));
        let style = attribute("style", &percent);
        format!("<{tag}{class}{hint}{style}>{}</{}>", cell.text.html(), &tag[..2])
    }
}

/// Folds the titles of the columns, the first row of `all`, to the width of the cells below them. Returns
/// one row for each line of titles; shorter titles begin further down.
fn folded_titles(all: &[Vec<String>]) -> Vec<Vec<String>> {
    let titles = all.first().map_or(&[][..], Vec::as_slice);
    let columns: Vec<Vec<String>> = titles
        .iter()
        .enumerate()
        .map(|(column, title)| {
            let cells = all[1..].iter().filter_map(|row| row.get(column));
            folded(title, cells.map(|cell| width(cell)).max().unwrap_or(0))
        })
        .collect();
    let height = columns.iter().map(Vec::len).max().unwrap_or(1);
    let rows = (0..height).map(|at| {
        let cells = columns.iter().map(|lines| {
            let below = at.checked_sub(height - lines.len());
            below.map_or_else(String::new, |below| lines[below].clone())
        });
        cells.collect()
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_titles_of_a_wide_table_are_folded() {
        let rows = ["quickstart", "random twin of quickstart"]
            .map(|name| [name, "51.30 ± 2.11", "62.41 ± 1.90", "7", "61.00"].into_iter().collect::<Row>());
        let titles = [
            "model",
            "test: micro F1 without MISC",
            "test: entity F1",
            "number of seeds",
            "validation: entity F1",
        ];
        let table = Table::new(titles, rows.to_vec()).with_best(Some(0));
        insta::assert_snapshot!(table.lines().join("\n"), @"
                                      test: micro                number
                                       F1 without  test: entity      of  validation:
          model                              MISC            F1   seeds    entity F1
        * quickstart                 51.30 ± 2.11  62.41 ± 1.90       7        61.00
          random twin of quickstart  51.30 ± 2.11  62.41 ± 1.90       7        61.00
        ");
    }

    fn table() -> Table {
        let rows = [["1e-5", "3", "71.20 ± 1.25"], ["a|b*c", "3", "-"]];
        let rows = rows.map(|cells| cells.into_iter().collect()).to_vec();
        Table::new(["rate_", "n", "F1"], rows).with_best(Some(1))
    }

    #[test]
    fn all_forms_hold_the_same_cells() {
        insta::assert_snapshot!(table().lines().join("\n"), @"
          rate_  n            F1
          1e-5   3  71.20 ± 1.25
        * a|b*c  3             -
        ");
        insta::assert_snapshot!(table().markdown(), @r"
        | rate\_ | n | F1 |
        | --- | ---: | ---: |
        | 1e-5 | 3 | 71.20 ± 1.25 |
        | **a\|b\*c** | **3** | **-** |
        ");
        insta::assert_snapshot!(table().html(), @r#"
        <div class="scroll"><table><thead><tr><th scope="col">rate_</th><th scope="col">n</th><th scope="col">F1</th></tr>
        </thead>
        <tbody><tr><th scope="row">1e-5</th><td>3</td><td>71.20 ± 1.25</td></tr>
        <tr class="best"><th scope="row">a|b*c</th><td>3</td><td>-</td></tr>
        </tbody>
        </table>
        </div>
        "#);
    }

    #[test]
    fn cells_and_rows_of_a_page_have_their_looks() {
        let cell =
            Cell { class: "wrong", hint: "a \"b\"".to_string(), percent: Some(12.4), ..Cell::from("7") };
        let all = Row { cells: vec!["<ours>".into(), "all".into(), cell], kind: RowKind::Total };
        let rows = vec![["<ours>", "theirs", "3"].into_iter().collect(), all];
        let table =
            Table { class: "pairs", is_grouped: true, ..Table::new(["model", "against", "seeds"], rows) };
        let html = table.html();
        for part in [
            "<table class=\"pairs\"><thead><tr><th scope=\"col\">against</th>",
            "<tr class=\"total\"><th scope=\"row\">all</th>",
            "<td class=\"wrong\" title=\"a &quot;b&quot;\" style=\"--share:12%\">7</td>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        let heading = "<tr><th class=\"group\" scope=\"rowgroup\" colspan=\"2\">&lt;ours&gt;</th></tr>";
        assert_eq!(html.matches(heading).count(), 1, "{html}");
    }
}
