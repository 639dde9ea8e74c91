//! Labels of rows with any number of labels: a list, a text with a JSON list, names in one text, or a column
//! of 0 and 1 for each label.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::Value;

use base::error::Problem;
use data::records::{Row, take, text_of};

/// Default names of the column of labels.
pub(super) const LABEL_COLUMNS: [&str; 4] = ["labels", "label", "category", "class"];

/// Default separator of the labels in a text.
const SEPARATOR: &str = ",";

/// The columns of the labels in one file.
pub(super) enum SeveralColumns {
    /// One column with a list, or with a text and its separator.
    One { name: String, separator: String, marks: Marks },
    /// A column of 0 and 1 for each label.
    Each(Vec<String>),
}

/// Returns one column for each of `names` if no column is `asked` for and `row` has all of them.
pub(super) fn each(names: &[String], asked: Option<&str>, row: &Row) -> Option<SeveralColumns> {
    let are_columns = asked.is_none() && !names.is_empty() && names.iter().all(|name| row.has(name));
    are_columns.then(|| SeveralColumns::Each(names.to_vec()))
}

/// Returns the first of `names` that is no column, where others of them are; `None` if a column is `asked`
/// for, or `row` has one with a default name.
pub(super) fn lacking<'n>(names: &'n [String], asked: Option<&str>, row: &Row) -> Option<&'n str> {
    let has_one = asked.is_some() || LABEL_COLUMNS.iter().any(|name| row.has(name));
    if has_one || !names.iter().any(|name| row.has(name)) {
        return None;
    }
    names.iter().find(|name| !row.has(name)).map(String::as_str)
}

/// Returns the single column `name` with this separator; `names` are the labels for the positions of lists of
/// 0 and 1.
pub(super) fn one(name: String, separator: Option<&str>, names: &[String]) -> SeveralColumns {
    let separator = separator.unwrap_or(SEPARATOR).to_string();
    SeveralColumns::One { name, separator, marks: Marks::new(names) }
}

impl SeveralColumns {
    /// The single column with all labels of a row, if there is one.
    pub(super) fn column(&self) -> Option<&str> {
        match self {
            Self::One { name, .. } => Some(name),
            Self::Each(_) => None,
        }
    }

    /// Takes the labels of a row, distinct and without surrounding white space. An empty list or text is a
    /// row without labels; a missing value is an error. If the file names its classes (`has_names`), a list
    /// of 0 and 1 contains class numbers and is never multi-hot.
    pub(super) fn labels(
        &mut self,
        source: &str,
        row: &mut Row,
        has_names: bool,
    ) -> Result<Vec<String>, Problem> {
        let place = format!("{source}:{}", row.line);
        let mut labels = match self {
            Self::Each(names) => {
                let mut labels = Vec::new();
                for name in names {
                    if is_one(source, row, name)? {
                        labels.push(name.clone());
                    }
                }
                labels
            }
            Self::One { name, separator, marks } => {
                let labels = if let Some(items) = row.take_list(name) {
                    marks.read_list(name, items, has_names, row.line)
                } else if let Some(text) = take(source, row, name)? {
                    if let Some(items) = list_of_text(&text) {
                        marks.read_list(name, items, has_names, row.line)
                    } else {
                        marks.read_text(name, &text, separator, row.line)
                    }
                } else {
                    Err(Problem::new(format!("the labels `{name}` are null"))
                        .hint("a row without labels has an empty list, `[]`"))
                };
                labels.map_err(|problem| problem.at(place))?
            }
        };
        let mut seen = BTreeSet::new();
        labels.retain(|label| seen.insert(label.clone()));
        Ok(labels)
    }

    /// Returns an error for a file in which all rows are lists of the same number of marks, without names for
    /// the positions.
    pub(super) fn require_labels(&self, source: &str) -> Result<()> {
        let Self::One { name, marks, .. } = self else { return Ok(()) };
        match marks.first_doubtful {
            Some((line, count)) if !marks.has_others => {
                Err(unnamed(name, count).at(format!("{source}:{line}")).into())
            }
            _ => Ok(()),
        }
    }
}

/// Recognises multi-hot lists (a 0 or 1 for each label) in a column of labels. Unlike lists of class numbers,
/// they may contain a number twice, a fraction or a boolean.
pub(super) struct Marks {
    /// The labels for the positions of a list; empty if none were given.
    names: Vec<String>,
    /// Line and length of the first list that may be multi-hot or a list of class numbers.
    first_doubtful: Option<(u64, usize)>,
    /// True if some row is not a list of 0 and 1.
    has_others: bool,
}

/// A 0 or a 1; `is_certain` if it is written as a class number never is.
#[derive(Clone, Copy, PartialEq)]
struct Mark {
    is_one: bool,
    is_certain: bool,
}

impl Marks {
    fn new(names: &[String]) -> Self {
        // If a label is called `0` or `1`, such values are class numbers and not marks.
        let are_numbers = names.iter().any(|name| name == "0" || name == "1");
        let names = if are_numbers { Vec::new() } else { names.to_vec() };
        Self { names, first_doubtful: None, has_others: are_numbers }
    }

    /// Returns the labels of a list. If the file names its classes (`has_names`), the list is never
    /// multi-hot.
    fn read_list(
        &mut self,
        name: &str,
        items: Vec<Value>,
        has_names: bool,
        line: u64,
    ) -> Result<Vec<String>, Problem> {
        if !has_names {
            let is_marked = items.iter().map(mark).collect::<Option<Vec<Mark>>>();
            if let Some(labels) = self.read(name, is_marked, line)? {
                return Ok(labels);
            }
        }
        labels_of_list(name, items)
    }

    /// Returns the labels of a text, which are between separators.
    fn read_text(
        &mut self,
        name: &str,
        text: &str,
        separator: &str,
        line: u64,
    ) -> Result<Vec<String>, Problem> {
        let trimmed = text.trim();
        if trimmed.starts_with("['") && trimmed.ends_with("']") {
            let message = format!("the labels `{name}` are a list as Python prints it");
            let hint = "write a list of JSON, with double quotes: in Python `json.dumps(labels)`";
            return Err(Problem::new(message).hint(hint));
        }
        let labels = split(text, separator);
        let is_marked = labels.iter().map(|label| mark_of_text(label)).collect();
        Ok(self.read(name, is_marked, line)?.unwrap_or(labels))
    }

    /// Returns the labels that a cell marks, or `None` if it is not a multi-hot list.
    fn read(
        &mut self,
        name: &str,
        marked: Option<Vec<Mark>>,
        line: u64,
    ) -> Result<Option<Vec<String>>, Problem> {
        let Some(marked) = marked.filter(|marked| marked.len() > 1) else {
            self.has_others = true;
            return Ok(None);
        };
        let ones = marked.iter().filter(|mark| mark.is_one).count();
        let zeros = marked.len() - ones;
        let is_certain = marked.iter().any(|mark| mark.is_certain) || ones > 1 || zeros > 1;
        if marked.len() == self.names.len() {
            let named = self.names.iter().zip(&marked).filter(|(_, mark)| mark.is_one);
            return Ok(Some(named.map(|(name, _)| name.clone()).collect()));
        }
        if is_certain && !self.names.is_empty() {
            let message = format!(
                "`{name}` is a list of {} marks of 0 and 1, and {} labels are named",
                marked.len(),
                self.names.len()
            );
            return Err(Problem::new(message).hint("name a label for each place of the list, in its order"));
        }
        if is_certain {
            return Err(unnamed(name, marked.len()));
        }
        self.first_doubtful.get_or_insert((line, marked.len()));
        Ok(None)
    }
}

fn unnamed(name: &str, count: usize) -> Problem {
    let message = format!(
        "`{name}` is a list of 0 and 1 for each label (multi-hot), and nothing names the {count} labels"
    );
    Problem::new(message).hint("name them in the order of the list: `data.labels`")
}

fn mark(item: &Value) -> Option<Mark> {
    match item {
        Value::Bool(is_one) => Some(Mark { is_one: *is_one, is_certain: true }),
        Value::Number(number) => {
            let value = number.as_f64()?;
            let is_one = value > 0.5;
            let is_mark = [0.0_f64, 1.0].iter().any(|mark| mark.to_bits() == value.to_bits());
            is_mark.then_some(Mark { is_one, is_certain: number.is_f64() })
        }
        _ => None,
    }
}

fn mark_of_text(label: &str) -> Option<Mark> {
    match label {
        "0" => Some(Mark { is_one: false, is_certain: false }),
        "1" => Some(Mark { is_one: true, is_certain: false }),
        _ => None,
    }
}

/// Returns the items of a text that is a JSON list, such as `["Food, Drink", "Sport"]`; `None` for any other
/// text.
pub(super) fn list_of_text(text: &str) -> Option<Vec<Value>> {
    let text = text.trim();
    if text.starts_with('[') { serde_json::from_str(text).ok() } else { None }
}

fn split(text: &str, separator: &str) -> Vec<String> {
    text.split(separator).map(str::trim).filter(|label| !label.is_empty()).map(str::to_string).collect()
}

fn labels_of_list(name: &str, items: Vec<Value>) -> Result<Vec<String>, Problem> {
    let mut labels = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        let is = match text_of(item) {
            Ok(Some(label)) if !label.trim().is_empty() => {
                labels.push(label.trim().to_string());
                continue;
            }
            Ok(Some(_)) => "empty",
            Ok(None) => "null",
            Err(is) => is,
        };
        let number = index + 1;
        let message = format!("item {number} of `{name}` is {is}, a text or a whole number is wanted");
        return Err(Problem::new(message));
    }
    Ok(labels)
}

/// Returns what a cell of a column of 0 and 1 says; `None` for any other text.
pub(super) fn one_or_zero(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "1.0" | "true" => Some(true),
        "0" | "0.0" | "false" => Some(false),
        _ => None,
    }
}

/// Returns true if the row has the label after which the column is named.
fn is_one(source: &str, row: &mut Row, name: &str) -> Result<bool, Problem> {
    let place = format!("{source}:{}", row.line);
    let text = row.take_number(name).map_err(|problem| problem.at(&place))?.unwrap_or_default();
    one_or_zero(&text).ok_or_else(|| {
        Problem::new(format!("column `{name}` is `{text}`, a 0 or a 1 is wanted")).at(place).hint(
            "rows without a 0 or a 1 for each label, such as those with -1 that are not to be scored, \
                 are left out with `data.on_bad_record: skip`; `data.label_column` names one column of \
                 labels instead",
        )
    })
}

#[cfg(test)]
mod tests {
    use crate::tasks::labelled::{Columns, KnownColumns, guess_columns, read_examples};

    /// The labels of each row of a file, or the message of the error.
    fn labels(name: &str, content: &str, columns: Columns<'_>) -> Result<Vec<Vec<String>>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let columns = Columns { several: Some(&[]), ..columns };
        let examples = read_examples(&path, &columns)
            .map_err(|e| format!("{e:#}").replace(&format!("{}/", folder.path().display()), ""))?;
        Ok(examples.into_iter().map(|example| example.labels).collect())
    }

    #[test]
    fn a_json_list_in_a_cell_holds_labels_with_commas() {
        let expected = [&["Food, Drink", "Sport"][..], &["Sport"], &[], &["Sport", "[Other]"], &["[Other]"]];
        let csv = "text,labels\na,\"[\"\"Food, Drink\"\", \"\"Sport\"\"]\"\nb,\"[\"\"Sport\"\"]\"\nc,[]\n\
                   d,\"Sport, [Other]\"\ne,[Other]\n";
        assert_eq!(labels("a.csv", csv, Columns::default()).unwrap(), expected);
        let tsv = "text\tlabels\na\t[\"Food, Drink\", \"Sport\"]\nb\tFood, Drink|Sport\n";
        let with_bar = Columns { label_separator: Some("|"), ..Columns::default() };
        assert_eq!(labels("a.tsv", tsv, with_bar).unwrap(), [expected[0]; 2]);
        // `init` sees that such a column holds lists.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, csv).unwrap();
        assert!(guess_columns(&path, KnownColumns::default(), false).unwrap().has_lists);
    }

    #[test]
    fn lists_in_cells_that_cannot_be_read_are_errors() {
        let python = "text,labels\na,\"['Food, Drink', 'Sport']\"\n";
        insta::assert_snapshot!(labels("a.csv", python, Columns::default()).unwrap_err(), @r"
        a.csv:2: the labels `labels` are a list as Python prints it
          hint: write a list of JSON, with double quotes: in Python `json.dumps(labels)`
        ");
        let nested = "text,labels\na,\"[[1], 2]\"\n";
        let error = labels("a.csv", nested, Columns::default()).unwrap_err();
        assert!(error.starts_with("a.csv:2: item 1 of `labels` is "), "{error}");
    }
}
