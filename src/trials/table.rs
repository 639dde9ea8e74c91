//! A table for a terminal and for Markdown: the same cells, one of its rows marked.

use crate::pages::columns::aligned;
use crate::scores::NOT_MEASURED;

/// Rows of text below a header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Titles of the columns.
    pub header: Vec<String>,
    /// Rows, each as long as the header.
    pub rows: Vec<Vec<String>>,
    /// The row that stands out.
    pub marked: Option<usize>,
    /// Columns at the left that hold names, not numbers.
    pub names: usize,
}

impl Table {
    /// Aligned lines, the marked row with a `*` before it.
    pub fn lines(&self) -> Vec<String> {
        let all: Vec<&[String]> =
            std::iter::once(&self.header).chain(&self.rows).map(Vec::as_slice).collect();
        let marker = |index: usize| match (self.marked, index) {
            (None, _) => "",
            (Some(marked), index) if index == marked + 1 => "* ",
            _ => "  ",
        };
        let lines = aligned(&all, self.names).into_iter().enumerate();
        lines.map(|(index, line)| format!("{}{line}", marker(index)).trim_end().to_string()).collect()
    }

    /// GitHub's Markdown, the marked row in bold. Ends in a newline.
    pub fn markdown(&self) -> String {
        let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let plain = |cells: &[String]| cells.iter().map(|cell| escaped(cell)).collect::<Vec<_>>();
        let rule = |column: usize| if column < self.names { "---" } else { "---:" }.to_string();
        let mut text = row(plain(&self.header)) + &row((0..self.header.len()).map(rule).collect());
        for (index, cells) in self.rows.iter().enumerate() {
            let bold = |cell: String| if cell.is_empty() { cell } else { format!("**{cell}**") };
            let cells = plain(cells);
            text +=
                &row(if self.marked == Some(index) { cells.into_iter().map(bold).collect() } else { cells });
        }
        text
    }
}

/// Text that is no markup: of a cell, or of a heading.
pub(super) fn escaped(cell: &str) -> String {
    let mut text = String::with_capacity(cell.len());
    for character in cell.chars() {
        if "|*_`<>\\[]".contains(character) {
            text.push('\\');
        }
        text.push(if character.is_control() { ' ' } else { character });
    }
    text
}

/// A mean with its deviation, such as `81.20 ± 0.35`; the mean alone where there is one value, words where it was
/// not measured (NaN).
pub fn mean_and_deviation(mean: f64, deviation: Option<f64>, factor: f64) -> String {
    let digits =
        |value: f64| if factor > 1.0 { format!("{:.2}", value * factor) } else { format!("{value:.4}") };
    match deviation {
        _ if mean.is_nan() => NOT_MEASURED.to_string(),
        Some(deviation) => format!("{} ± {}", digits(mean), digits(deviation)),
        None => digits(mean),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_hold_the_same_cells() {
        let row = |cells: [&str; 3]| cells.map(str::to_string).to_vec();
        let table = Table {
            header: row(["learning_rate", "seeds", "accuracy %"]),
            rows: vec![row(["1e-5", "3", "71.20 ± 1.25"]), row(["a|b*c", "3", "-"])],
            marked: Some(1),
            names: 1,
        };
        insta::assert_snapshot!(table.lines().join("\n"), @r#"
          learning_rate  seeds    accuracy %
          1e-5               3  71.20 ± 1.25
        * a|b*c              3             -
        "#);
        insta::assert_snapshot!(table.markdown(), @r#"
        | learning\_rate | seeds | accuracy % |
        | --- | ---: | ---: |
        | 1e-5 | 3 | 71.20 ± 1.25 |
        | **a\|b\*c** | **3** | **-** |
        "#);
    }

    #[test]
    fn numbers_have_the_digits_that_their_reader_knows() {
        assert_eq!(mean_and_deviation(0.812, Some(0.0035), 100.0), "81.20 ± 0.35");
        assert_eq!(mean_and_deviation(0.812, None, 1.0), "0.8120");
        assert_eq!(mean_and_deviation(f64::NAN, Some(f64::NAN), 1.0), NOT_MEASURED);
    }
}
