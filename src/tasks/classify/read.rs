//! Reads labelled examples from CSV, TSV and JSONL files: which columns are meant, and what a good row is.
//!
//! A bad row is an error that names the file and the line, never a dropped row. How a file is cut into rows
//! is `rows`' matter; what a label's id is, `labels`'.

use std::path::Path;

use anyhow::Result;

use crate::config::finetune::ClassifyData;
use crate::error::Problem;
use crate::fs;
use crate::tasks::classify::rows::JsonRows;
use crate::tasks::classify::rows::Row;
use crate::tasks::classify::rows::TableRows;

const TEXT_COLUMNS: [&str; 3] = ["text", "sentence", "content"];
const LABEL_COLUMNS: [&str; 3] = ["label", "category", "class"];

/// One text, or pair of texts, and its label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// The (first) text, never empty.
    pub text: String,
    /// The second text of a pair, never empty.
    pub text_pair: Option<String>,
    /// The label as it stands in the file, without white space around it; absent where none was asked for.
    pub label: Option<String>,
    /// The line of the file on which the row begins, from 1.
    pub line: u64,
}

/// Which columns (CSV, TSV) or fields (JSONL) to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Columns<'a> {
    /// Column of the text; `text`, `sentence` or `content` when absent.
    pub text: Option<&'a str>,
    /// Column of the second text; no pairs when absent.
    pub text_pair: Option<&'a str>,
    /// Column of the label; `label`, `category` or `class` when absent.
    pub label: Option<&'a str>,
    /// Whether each row must have a label. Without, labels are not read at all.
    pub labelled: bool,
}

impl<'a> Columns<'a> {
    /// The columns that a configuration names, with labels.
    pub fn of(data: &'a ClassifyData) -> Self {
        Self {
            text: data.text_column.as_deref(),
            text_pair: data.text_pair_column.as_deref(),
            label: data.label_column.as_deref(),
            labelled: true,
        }
    }
}

/// Reads all examples of a file: `.csv`, `.tsv`, `.jsonl` (`.ndjson`, `.json`), each also `.gz`, `.zst`,
/// `.bz2`.
///
/// In a CSV file a field may be quoted and hold commas, newlines and doubled quotes (RFC 4180). In a TSV file
/// quotes are ordinary characters, as in GLUE's files. Text must be UTF-8.
pub fn read_examples(path: &Path, columns: &Columns<'_>) -> Result<Vec<Example>> {
    let plain = fs::without_compression(path);
    let extension =
        plain.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).unwrap_or_default();
    let rows: Box<dyn Iterator<Item = Result<Row>>> = match extension.as_str() {
        "csv" => Box::new(TableRows::csv(path)?),
        "tsv" => Box::new(TableRows::tsv(path)?),
        "jsonl" | "ndjson" | "json" => Box::new(JsonRows::open(path)?),
        _ => {
            return Err(Problem::new("cannot tell the format of the file from its name")
                .at(path.display())
                .hint("name it `.csv`, `.tsv` or `.jsonl`, with `.gz`, `.zst` or `.bz2` behind where it is compressed")
                .into());
        }
    };
    let mut examples = Vec::new();
    let mut chosen: Option<Chosen> = None;
    for row in rows {
        let row = row?;
        let chosen = match &mut chosen {
            Some(chosen) => chosen,
            none => none.insert(Chosen::new(path, &row, columns)?),
        };
        examples.push(chosen.example(path, row)?);
    }
    if examples.is_empty() {
        return Err(Problem::new("has no examples").at(path.display()).into());
    }
    Ok(examples)
}

/// The columns of one file by name, settled on its first row.
struct Chosen {
    text: String,
    text_pair: Option<String>,
    label: Option<String>,
}

impl Chosen {
    fn new(path: &Path, row: &Row, columns: &Columns<'_>) -> Result<Self> {
        let pick = |asked: Option<&str>, defaults: &[&str], option: &str| -> Result<String> {
            let found = match asked {
                Some(name) => row.has(name).then_some(name),
                None => defaults.iter().copied().find(|name| row.has(name)),
            };
            found.map(str::to_string).ok_or_else(|| missing_column(path, row, asked, defaults, option).into())
        };
        Ok(Self {
            text: pick(columns.text, &TEXT_COLUMNS, "text_column")?,
            text_pair: columns.text_pair.map(|name| pick(Some(name), &[], "text_pair_column")).transpose()?,
            label: if columns.labelled {
                Some(pick(columns.label, &LABEL_COLUMNS, "label_column")?)
            } else {
                None
            },
        })
    }

    fn example(&self, path: &Path, mut row: Row) -> Result<Example> {
        let line = row.line;
        let mut take = |name: &String, what: &str| -> Result<String> {
            let place = || format!("{}:{line}", path.display());
            if !row.has(name) {
                let there = list(row.names());
                return Err(Problem::new(format!("has no field `{name}`; there are {there}"))
                    .at(place())
                    .into());
            }
            let value = row.take(name).map_err(|problem| problem.at(place()))?;
            match value {
                Some(value) if !value.trim().is_empty() => Ok(value),
                _ => Err(Problem::new(format!("{what} `{name}` is empty"))
                    .at(place())
                    .hint("give the row one, or take the row out of the file")
                    .into()),
            }
        };
        let text = take(&self.text, "text")?;
        let text_pair = self.text_pair.as_ref().map(|name| take(name, "second text")).transpose()?;
        let label = self
            .label
            .as_ref()
            .map(|name| take(name, "label").map(|label| label.trim().to_string()))
            .transpose()?;
        Ok(Example { text, text_pair, label, line })
    }
}

fn missing_column(path: &Path, row: &Row, asked: Option<&str>, defaults: &[&str], option: &str) -> Problem {
    let there = list(row.names());
    let (message, place_line) = match asked {
        Some(name) => (format!("has no column `{name}`; there are {there}"), row.header_line),
        None => (format!("has no column {}; there are {there}", alternatives(defaults)), row.header_line),
    };
    let near = asked.and_then(|name| {
        let closest = row
            .names()
            .max_by(|a, b| strsim::jaro_winkler(name, a).total_cmp(&strsim::jaro_winkler(name, b)))?;
        (strsim::jaro_winkler(name, closest) > 0.8).then(|| format!("did you mean `{closest}`?"))
    });
    let hint = near.unwrap_or_else(|| format!("name the column with `{option}`"));
    Problem::new(message).at(format!("{}:{place_line}", path.display())).hint(hint)
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn alternatives(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.join(""),
    }
}

#[cfg(test)]
mod tests;
