//! Reads labelled examples from CSV, TSV, JSONL and Parquet files: which columns are meant, and what a good
//! row is.
//!
//! A bad row is an error that names the file and the line, unless the caller wants bad rows skipped and counted.
//! `rows` cuts a file into rows; `labels` gives labels their ids.

use std::path::Path;

use anyhow::Result;

use crate::config::OnBadRecord;
use crate::config::finetune::ClassifyData;
use crate::error::Problem;
use crate::tasks::labelled::bad_rows::BadRows;
use crate::tasks::labelled::bad_rows::RowError;
use crate::tasks::labelled::held::BLOCK_BYTES;
use crate::tasks::labelled::held::Held;
use crate::tasks::labelled::rows::Row;
use crate::tasks::labelled::rows::RowFormat;
use crate::tasks::labelled::rows::Rows;
use crate::tasks::labelled::rows::list;
use crate::tasks::labelled::rows::rows_of;
use crate::tasks::labelled::rows::take;
use crate::tasks::labelled::several;
use crate::tasks::labelled::several::SeveralColumns;
use crate::tasks::labelled::trained_columns::TrainedColumns;

pub(super) const TEXT_COLUMNS: [&str; 3] = ["text", "sentence", "content"];
const LABEL_COLUMNS: [&str; 3] = ["label", "category", "class"];
pub(super) const NUMBER_COLUMNS: [&str; 3] = ["label", "score", "similarity"];

/// The hint about a value that is empty.
const NO_VALUE: &str = "give the row one, take the row out of the file, or leave such rows out in fine-tuning: \
    `data.on_bad_record: skip`";

/// One text, or pair of texts, and its label.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    /// The (first) text, never empty.
    pub text: String,
    /// The second text of a pair, never empty.
    pub text_pair: Option<String>,
    /// The label as it stands in the file, without white space around it; absent where none was asked for.
    pub label: Option<String>,
    /// The labels of the row where it may have any number, each once, as they stand in the file; none where
    /// one label or none was asked for.
    pub labels: Vec<String>,
    /// The numbers of the row, all finite; none where they were not asked for.
    pub numbers: Vec<f32>,
    /// The line of the file on which the row begins, from 1.
    pub line: u64,
}

impl Example {
    /// Both texts of a pair as one.
    pub fn whole_text(&self) -> String {
        match &self.text_pair {
            Some(pair) => format!("{} {pair}", self.text),
            None => self.text.clone(),
        }
    }

    /// Memory that it takes, about: each text has a block of its own.
    fn held_bytes(&self) -> u64 {
        let texts = [Some(&self.text), self.text_pair.as_ref(), self.label.as_ref()];
        let blocks: usize =
            texts.into_iter().flatten().chain(&self.labels).map(|text| text.len() + BLOCK_BYTES).sum();
        (size_of::<Self>() + blocks) as u64
    }
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
    /// The labels, if they are known, of rows that each have any number of them; absent where one label or
    /// none is read.
    pub several: Option<&'a [String]>,
    /// What stands between the labels of a text that has any number of them; `,` when absent.
    pub label_separator: Option<&'a str>,
    /// The names that numbers in the place of labels, and places in lists of 0 and 1, stand for.
    pub label_names: &'a [String],
    /// The labels, if they are known before the file is read. If they are numbers, class names of the file are not
    /// used.
    pub known_labels: &'a [String],
    /// Columns of the numbers that each row must have; an empty list stands for the column of the label, else
    /// `label`, `score` or `similarity`. Absent where no numbers are read.
    pub numbers: Option<&'a [String]>,
    /// The columns of texts that the model was trained on, which are read where no others are named.
    pub trained: Option<&'a TrainedColumns>,
}

impl<'a> Columns<'a> {
    /// The columns that a configuration names, with labels.
    pub fn of(data: &'a ClassifyData) -> Self {
        Self {
            text: data.text_column.as_deref(),
            text_pair: data.text_pair_column.as_deref(),
            label: data.label_column.as_deref(),
            labelled: true,
            several: None,
            label_separator: data.label_separator.as_deref(),
            label_names: &[],
            known_labels: &data.labels,
            numbers: None,
            trained: None,
        }
    }

    /// The column of the text, if it is named or was trained on and `row` has it.
    fn text_of(&self, row: &Row) -> Option<&'a str> {
        let trained = || self.trained?.text_column.as_deref().filter(|name| row.has(name));
        self.text.or_else(trained)
    }

    /// The column of the second text, if it is named or was trained on; where a text is named alone, the latter
    /// only if `row` has it.
    fn text_pair_of(&self, row: &Row) -> Option<&'a str> {
        let trained = || {
            let name = self.trained?.text_pair_column.as_deref()?;
            (self.text.is_none() || row.has(name)).then_some(name)
        };
        self.text_pair.or_else(trained)
    }
}

/// Reads all examples of a file: `.csv`, `.tsv`, `.jsonl` (`.ndjson`, `.json`), each also `.gz`, `.zst`,
/// `.bz2`; `.parquet`.
///
/// In a CSV file a field may be quoted and hold commas, newlines and doubled quotes (RFC 4180). In a TSV file
/// quotes are ordinary characters, as in GLUE's files. Text must be UTF-8. A row that cannot be read is an error.
pub fn read_examples(path: &Path, columns: &Columns<'_>) -> Result<Vec<Example>> {
    read_examples_skipping(path, columns, &mut BadRows::new(OnBadRecord::Fail, "row"))
}

/// The format that the name of a file tells; an error says which names there are.
pub(super) fn format_of(path: &Path) -> Result<RowFormat, Problem> {
    RowFormat::of(path).ok_or_else(|| {
        let hint = "name it `.csv`, `.tsv` or `.jsonl`, followed by `.gz`, `.zst` or `.bz2` where it is compressed, \
                    or `.parquet`";
        Problem::new("cannot tell the format of the file from its name").at(path.display()).hint(hint)
    })
}

/// As [`read_examples`]; `bad_rows` says what becomes of rows that cannot be read, and counts those left out.
pub fn read_examples_skipping(
    path: &Path,
    columns: &Columns<'_>,
    bad_rows: &mut BadRows,
) -> Result<Vec<Example>> {
    let format = format_of(path)?;
    let name = path.display().to_string();
    let (mut examples, mut held) = (Vec::new(), Held::default());
    let mut chosen: Option<Chosen> = None;
    let mut rows = rows_of(path, format)?;
    while let Some(row) = rows.next() {
        let example = row.and_then(|row| {
            let chosen = match &mut chosen {
                Some(chosen) => chosen,
                none => none.insert(Chosen::new(&name, &row, columns)?.named_by(rows.as_ref(), columns)),
            };
            Ok(chosen.example(&name, row)?)
        });
        let Some(example) = bad_rows.take(example)? else { continue };
        held.add(example.held_bytes(), rows.position_bytes(), || format!("{name}:{}", example.line))?;
        examples.push(example);
    }
    if examples.is_empty() {
        return Err(bad_rows.none_left(path, "examples").into());
    }
    if let Some(several) = chosen.as_ref().and_then(|chosen| chosen.several.as_ref()) {
        several.require_labels(&name)?;
    }
    Ok(examples)
}

/// The columns of one file by name, settled on its first row.
pub(super) struct Chosen {
    pub(super) text: String,
    pub(super) text_pair: Option<String>,
    label: Option<String>,
    several: Option<SeveralColumns>,
    numbers: Vec<String>,
    /// The names that the file gives to the numbers of its labels; none in most files.
    class_names: Vec<String>,
}

impl Chosen {
    pub(super) fn new(source: &str, row: &Row, columns: &Columns<'_>) -> Result<Self, RowError> {
        // What a header lacks is missing in all rows.
        let missing = |problem: Problem| {
            if row.has_header() { RowError::File(problem.into()) } else { RowError::Row(problem) }
        };
        let pick = |asked: Option<&str>, defaults: &[&str], option: &str| -> Result<String, RowError> {
            let found = match asked {
                Some(name) => row.has(name).then_some(name),
                None => defaults.iter().copied().find(|name| row.has(name)),
            };
            found
                .map(str::to_string)
                .ok_or_else(|| missing(missing_column(source, row, asked, defaults, option)))
        };
        let chosen = Self {
            text: pick(columns.text_of(row), &TEXT_COLUMNS, "text_column")?,
            text_pair: match columns.text_pair_of(row) {
                Some(name) if columns.text_pair.is_none() && !row.has(name) => {
                    return Err(missing(missing_pair(source, row, name)));
                }
                named => named.map(|name| pick(Some(name), &[], "text_pair_column")).transpose()?,
            },
            label: if columns.labelled {
                Some(pick(columns.label, &LABEL_COLUMNS, "label_column")?)
            } else {
                None
            },
            several: match columns.several {
                None => None,
                Some(names) => Some(match several::each(names, columns.label, row) {
                    Some(each) => each,
                    None => several::one(
                        pick(columns.label, &several::LABEL_COLUMNS, "label_column")?,
                        columns.label_separator,
                        columns.label_names,
                    ),
                }),
            },
            numbers: match columns.numbers {
                None => Vec::new(),
                Some([]) => vec![pick(columns.label, &NUMBER_COLUMNS, "label_column")?],
                Some(names) => {
                    names.iter().map(|name| pick(Some(name), &[], "labels")).collect::<Result<_, _>>()?
                }
            },
            class_names: Vec::new(),
        };
        chosen.require_apart(source).map_err(|problem| RowError::File(problem.into()))?;
        Ok(chosen)
    }

    /// Refuses a column that is to be two things: a model that reads its label learns nothing.
    fn require_apart(&self, source: &str) -> Result<(), Problem> {
        let texts = [("text", Some(&self.text)), ("second text", self.text_pair.as_ref())];
        let golds = self.label.iter().chain(&self.numbers).map(|name| ("label", Some(name)));
        let named = texts.into_iter().chain(golds).filter_map(|(what, name)| Some((what, name?)));
        let named: Vec<(&str, &String)> = named.collect();
        for (index, (what, name)) in named.iter().enumerate() {
            let same = named[..index].iter().find(|(other, known)| known == name && other != what);
            if let Some((other, _)) = same {
                let hint = "name another column by `text_column`, `text_pair_column` or `label_column`";
                let message = format!("column `{name}` is taken for the {other} and for the {what}");
                return Err(Problem::usage(message).at(source).hint(hint));
            }
        }
        Ok(())
    }

    /// With the names that the file gives to the numbers of its labels, as a Parquet file of `datasets` does. A model
    /// whose labels are numbers keeps to the numbers.
    fn named_by(mut self, rows: &dyn Rows, columns: &Columns<'_>) -> Self {
        let column = self.label.as_deref().or_else(|| self.several.as_ref()?.column());
        let known = columns.several.unwrap_or(columns.known_labels);
        if !known.iter().any(|label| label.parse::<i64>().is_ok()) {
            self.class_names = column.and_then(|column| rows.class_names(column)).unwrap_or_default();
        }
        self
    }

    /// The name of a label, which may be written as its number.
    fn class_name(&self, label: String, place: &str) -> Result<String, Problem> {
        let names = &self.class_names;
        match label.parse::<i64>() {
            Ok(number) if !names.is_empty() => {
                let name = usize::try_from(number).ok().and_then(|number| names.get(number));
                name.cloned().ok_or_else(|| unnamed(number, names.len()).at(place))
            }
            _ => Ok(label),
        }
    }

    fn example(&mut self, source: &str, mut row: Row) -> Result<Example, Problem> {
        let line = row.line;
        let mut take = |name: &String, what: &str| -> Result<String, Problem> {
            match take(source, &mut row, name)? {
                Some(value) if !value.trim().is_empty() => Ok(value),
                _ => Err(Problem::new(format!("{what} `{name}` is empty"))
                    .at(format!("{source}:{line}"))
                    .hint(NO_VALUE)),
            }
        };
        let text = take(&self.text, "text")?;
        let text_pair = self.text_pair.as_ref().map(|name| take(name, "second text")).transpose()?;
        let label = self
            .label
            .as_ref()
            .map(|name| take(name, "label").map(|label| label.trim().to_string()))
            .transpose()?;
        let has_names = !self.class_names.is_empty();
        let labels = match &mut self.several {
            Some(several) => several.labels(source, &mut row, has_names)?,
            None => Vec::new(),
        };
        let named = |label| self.class_name(label, &format!("{source}:{line}"));
        let label = label.map(named).transpose()?;
        let labels = labels.into_iter().map(named).collect::<Result<_, _>>()?;
        let numbers =
            self.numbers.iter().map(|name| number(source, &mut row, name)).collect::<Result<_, _>>()?;
        Ok(Example { text, text_pair, label, labels, numbers, line })
    }
}

/// A label with a number to which the file gives no name.
fn unnamed(number: i64, names: usize) -> Problem {
    let most = names - 1;
    let message = format!("the label is {number}, and the file has names for the numbers 0 to {most}");
    Problem::new(message).hint("`datasets` writes -1 where a row has no label: take such rows out")
}

/// A number that the row must have.
fn number(source: &str, row: &mut Row, name: &str) -> Result<f32, Problem> {
    let place = format!("{source}:{}", row.line);
    let text = row.take_number(name).map_err(|problem| problem.clone().at(&place))?;
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else {
        return Err(Problem::new(format!("number `{name}` is empty")).at(place).hint(NO_VALUE));
    };
    match text.trim().parse::<f32>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err(Problem::new(format!("column `{name}` is `{text}`, a number is wanted")).at(place)),
    }
}

fn missing_column(source: &str, row: &Row, asked: Option<&str>, defaults: &[&str], option: &str) -> Problem {
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
    Problem::new(message).at(format!("{source}:{place_line}")).hint(hint)
}

/// The column of the second text is missing where the model was trained on pairs.
fn missing_pair(source: &str, row: &Row, name: &str) -> Problem {
    let there = list(row.names());
    Problem::new(format!(
        "has no column `{name}`, whose texts the model was trained on as second ones; there are {there}"
    ))
    .at(format!("{source}:{}", row.header_line))
    .hint("name it with `text_pair_column`; with `text_column` alone single texts are read")
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
