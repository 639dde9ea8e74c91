//! Labels of rows that have any number of them: a list, names in one text, or a column of 0 and 1 for each.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::Value;

use crate::error::Problem;
use crate::tasks::labelled::rows::Row;
use crate::tasks::labelled::rows::take;
use crate::tasks::labelled::rows::text_of;

/// Columns of labels, where none is named.
pub(super) const LABEL_COLUMNS: [&str; 4] = ["labels", "label", "category", "class"];

/// What stands between the labels of a text where nothing else is said.
const SEPARATOR: &str = ",";

/// The columns of one file.
pub(super) enum SeveralColumns {
    /// A column with a list, or with a text and its separator.
    One { name: String, separator: String },
    /// A column for each label.
    Each(Vec<String>),
}

/// The columns of `names`, where none is `asked` for and all of them are there.
pub(super) fn each(names: &[String], asked: Option<&str>, row: &Row) -> Option<SeveralColumns> {
    let are_columns = asked.is_none() && !names.is_empty() && names.iter().all(|name| row.has(name));
    are_columns.then(|| SeveralColumns::Each(names.to_vec()))
}

/// The column `name`, whose texts have this separator.
pub(super) fn one(name: String, separator: Option<&str>) -> SeveralColumns {
    SeveralColumns::One { name, separator: separator.unwrap_or(SEPARATOR).to_string() }
}

impl SeveralColumns {
    /// The labels of a row, each once, without white space around them. A list or text that is empty is a row
    /// without labels; a value that is missing is an error.
    pub(super) fn labels(&self, source: &str, row: &mut Row) -> Result<Vec<String>> {
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
            Self::One { name, separator } => {
                if let Some(items) = row.take_list(name) {
                    of_list(name, items).map_err(|problem| problem.at(place))?
                } else if let Some(text) = take(source, row, name)? {
                    of_text(&text, separator)
                } else {
                    return Err(Problem::new(format!("the labels `{name}` are null"))
                        .at(place)
                        .hint("a row without labels has an empty list, `[]`")
                        .into());
                }
            }
        };
        let mut seen = BTreeSet::new();
        labels.retain(|label| seen.insert(label.clone()));
        Ok(labels)
    }
}

fn of_text(text: &str, separator: &str) -> Vec<String> {
    text.split(separator).map(str::trim).filter(|label| !label.is_empty()).map(str::to_string).collect()
}

fn of_list(name: &str, items: Vec<Value>) -> Result<Vec<String>, Problem> {
    let label = |(place, item): (usize, Value)| {
        let number = place + 1;
        let refuse = |is: &str| {
            Problem::new(format!("item {number} of `{name}` is {is}, a text or a whole number is wanted"))
        };
        match text_of(item) {
            Ok(Some(label)) if !label.trim().is_empty() => Ok(label.trim().to_string()),
            Ok(Some(_)) => Err(refuse("empty")),
            Ok(None) => Err(refuse("null")),
            Err(is) => Err(refuse(is)),
        }
    };
    items.into_iter().enumerate().map(label).collect()
}

/// Whether the row has the label that is the name of a column.
fn is_one(source: &str, row: &mut Row, name: &str) -> Result<bool> {
    let place = format!("{source}:{}", row.line);
    let text = row.take_number(name).map_err(|problem| problem.at(&place))?.unwrap_or_default();
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "1.0" | "true" => Ok(true),
        "0" | "0.0" | "false" => Ok(false),
        _ => {
            let message = format!("column `{name}` is `{text}`, a 0 or a 1 is wanted");
            Err(Problem::new(message)
                .at(place)
                .hint("all of the labels are columns here; `label_column` names one column of labels instead")
                .into())
        }
    }
}
