//! A table of text cells, rendered for a terminal and as Markdown, with one row marked as the best.

use base::pages::columns::aligned;
use base::scores::NOT_MEASURED;

/// Rows of text below a header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Titles of the columns.
    pub header: Vec<String>,
    /// Cells of each row, as many as the header has.
    pub rows: Vec<Vec<String>>,
    /// Index of the row that is marked, such as the best one.
    pub marked: Option<usize>,
    /// Number of columns at the left that contain names, not numbers.
    pub names: usize,
}

impl Table {
    /// Returns aligned lines; the marked row begins with `*`.
    pub fn lines(&self) -> Vec<String> {
        let all: Vec<&[String]> =
            std::iter::once(&self.header).chain(&self.rows).map(Vec::as_slice).collect();
        let lines = aligned(&all, self.names).into_iter().enumerate().map(|(index, line)| {
            let marker = match self.marked {
                None => "",
                Some(marked) if index == marked + 1 => "* ",
                Some(_) => "  ",
            };
            format!("{marker}{line}").trim_end().to_string()
        });
        lines.collect()
    }

    /// Returns a table in GitHub's Markdown with the marked row in bold. The text ends in a newline.
    pub fn markdown(&self) -> String {
        let rules = (0..self.header.len()).map(|column| if column < self.names { "---" } else { "---:" });
        let rules: Vec<String> = rules.map(str::to_string).collect();
        let mut text = markdown_row(&escaped_all(&self.header)) + &markdown_row(&rules);
        for (index, cells) in self.rows.iter().enumerate() {
            let mut cells = escaped_all(cells);
            if self.marked == Some(index) {
                for cell in cells.iter_mut().filter(|cell| !cell.is_empty()) {
                    *cell = format!("**{cell}**");
                }
            }
            text += &markdown_row(&cells);
        }
        text
    }
}

/// Escapes the text of a cell or heading, so that Markdown shows it as it is.
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

/// Returns a mean with its standard deviation, such as `81.20 ± 0.35`; the mean alone without a deviation,
/// and words if the mean is NaN (not defined). Values are multiplied by `factor` for display.
pub fn mean_and_deviation(mean: f64, deviation: Option<f64>, factor: f64) -> String {
    match deviation {
        _ if mean.is_nan() => NOT_MEASURED.to_string(),
        Some(deviation) => format!("{} ± {}", digits(mean, factor), digits(deviation, factor)),
        None => digits(mean, factor),
    }
}

/// Two decimals for a percentage (a factor above 1), else four.
fn digits(value: f64, factor: f64) -> String {
    if factor > 1.0 { format!("{:.2}", value * factor) } else { format!("{value:.4}") }
}

/// One line of a Markdown table.
fn markdown_row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn escaped_all(cells: &[String]) -> Vec<String> {
    cells.iter().map(|cell| escaped(cell)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_hold_the_same_cells() {
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

    fn row(cells: [&str; 3]) -> Vec<String> {
        cells.map(str::to_string).to_vec()
    }
}
