//! Reads labelled examples from CSV, TSV, JSONL and Parquet files: selects the columns, and checks the rows.
//!
//! A bad row is an error that names the file and the line, unless the caller wants bad rows skipped and
//! counted. `rows` splits a file into rows; `labels` assigns ids to labels.

use std::path::Path;

use anyhow::Result;

use crate::tasks::labelled::bad_rows::BadRows;
use crate::tasks::labelled::memory::{BLOCK_BYTES, ExampleMemory};
use crate::tasks::labelled::several;
use crate::tasks::labelled::several::SeveralColumns;
use crate::tasks::labelled::trained_columns::TrainedColumns;
use base::error::Problem;
use base::fs::TextEncoding;
use base::words::joined;
use config::OnBadRecord;
use config::finetune::ClassifyData;
use data::records::{Row, RowError, RowFormat, Rows, list, rows_of, take, within_objects};

pub(super) const TEXT_COLUMNS: [&str; 3] = ["text", "sentence", "content"];
pub(super) const LABEL_COLUMNS: [&str; 3] = ["label", "category", "class"];
pub(super) const NUMBER_COLUMNS: [&str; 3] = ["label", "score", "similarity"];

/// The hint for an empty value.
const NO_VALUE: &str =
    "give the row one, take the row out of the file, or leave such rows out: `data.on_bad_record: skip`";

/// A text, or a pair of texts, with its label.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Example {
    /// The (first) text, never empty.
    pub text: String,
    /// The second text of a pair, never empty.
    pub text_pair: Option<String>,
    /// The label as written in the file, without surrounding white space; `None` if no label was requested.
    pub label: Option<String>,
    /// The distinct labels of a row with any number of labels, as written in the file; empty if one label or
    /// none was requested.
    pub labels: Vec<String>,
    /// The numbers of the row, all finite; empty if they were not requested.
    pub numbers: Vec<f32>,
    /// The line of the file on which the row begins, from 1.
    pub line: u64,
}

impl Example {
    /// Joins both texts of a pair with a space.
    pub fn whole_text(&self) -> String {
        match &self.text_pair {
            Some(pair) => format!("{} {pair}", self.text),
            None => self.text.clone(),
        }
    }

    /// Approximate memory of the example. Each text is an allocation of its own.
    fn memory_bytes(&self) -> u64 {
        let texts = [Some(&self.text), self.text_pair.as_ref(), self.label.as_ref()];
        let blocks: usize =
            texts.into_iter().flatten().chain(&self.labels).map(|text| text.len() + BLOCK_BYTES).sum();
        (size_of::<Self>() + blocks) as u64
    }
}

/// The columns (CSV, TSV) or fields (JSONL) to read. A field within an object is named by a path, as in
/// `review.text`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Columns<'a> {
    /// Column of the text; `text`, `sentence` or `content` if `None`.
    pub text: Option<&'a str>,
    /// Column of the second text; `None` for single texts.
    pub text_pair: Option<&'a str>,
    /// Column of the label; `label`, `category` or `class` if `None`.
    pub label: Option<&'a str>,
    /// True if each row must have a label; otherwise labels are not read at all.
    pub labelled: bool,
    /// For rows with any number of labels: the known labels, or an empty list. `None` if one label or none is
    /// read.
    pub several: Option<&'a [String]>,
    /// Separator of the labels in a text with any number of labels; `,` if `None`.
    pub label_separator: Option<&'a str>,
    /// Names for labels that are numbers, and for the positions in lists of 0 and 1. A file that names its
    /// classes itself needs none for the numbers.
    pub label_names: &'a [String],
    /// The labels, if they are known before the file is read. If one of them is a number, numbers in the file
    /// get no names.
    pub known_labels: &'a [String],
    /// Columns of the numbers that each row must have. An empty list means the column of the label, or
    /// else `label`, `score` or `similarity`. `None` if no numbers are read.
    pub numbers: Option<&'a [String]>,
    /// Encoding of the file; UTF-8 if `None`.
    pub encoding: Option<TextEncoding>,
    /// The columns that the model was trained on, used if no others are named.
    pub trained: Option<&'a TrainedColumns>,
}

impl<'a> Columns<'a> {
    /// The columns that a configuration names, with labels.
    pub fn from_config(data: &'a ClassifyData) -> Self {
        Self {
            text: data.text_column.as_deref(),
            text_pair: data.text_pair_column.as_deref(),
            label: data.label_column.as_deref(),
            labelled: true,
            several: None,
            label_separator: data.label_separator.as_deref(),
            label_names: &data.labels,
            known_labels: &data.labels,
            numbers: None,
            encoding: data.encoding,
            trained: None,
        }
    }

    /// Returns the column of the text that is named or, if `row` has it, the one of training; `None` for
    /// neither.
    fn text_of(&self, row: &Row) -> Option<&'a str> {
        self.text.or_else(|| self.trained?.text_column.as_deref().filter(|name| row.has(name)))
    }

    /// Returns the column of the label that is named or, if `row` has it, the one of training.
    fn label_of(&self, row: &Row) -> Option<&'a str> {
        self.label.or_else(|| self.trained?.label_column.as_deref().filter(|name| row.has(name)))
    }

    /// Returns the column of the second text that is named, or the one of training. If only a text column is
    /// named, the one of training is used only if `row` has it.
    fn text_pair_of(&self, row: &Row) -> Option<&'a str> {
        self.text_pair.or_else(|| {
            let name = self.trained?.text_pair_column.as_deref()?;
            (self.text.is_none() || row.has(name)).then_some(name)
        })
    }
}

/// Reads all examples of a file: `.csv`, `.tsv`, `.jsonl` (`.ndjson`, `.json`), each also `.gz`, `.zst`,
/// `.bz2`; `.parquet`.
///
/// In a CSV file a field may be quoted and contain commas, newlines and doubled quotes (RFC 4180). In a TSV
/// file quotes are ordinary characters, as in GLUE's files. Text must be UTF-8, or in the encoding of
/// `columns`. A row that cannot be read is
/// an error.
pub fn read_examples(path: &Path, columns: &Columns<'_>) -> Result<Vec<Example>> {
    read_examples_skipping(path, columns, &mut BadRows::new(OnBadRecord::Fail, "row"))
}

/// Returns the format for the name of a file; the error lists the names that are known.
pub(super) fn format_of(path: &Path) -> Result<RowFormat, Problem> {
    RowFormat::of(path).ok_or_else(|| {
        let hint = "name it `.csv`, `.tsv` or `.jsonl`, followed by `.gz`, `.zst` or `.bz2` where it is compressed, \
                    or `.parquet`";
        Problem::new("cannot tell the format of the file from its name").at(path.display()).hint(hint)
    })
}

/// Returns the column of the number of examples with one number each, as [`read_examples`] chooses it by the
/// first row of a file. `None` if no row can be read.
pub fn number_column(path: &Path, columns: &Columns<'_>) -> Result<Option<String>> {
    let name = path.display().to_string();
    let Some(row) = rows_of(path, format_of(path)?, columns.encoding)?.find_map(Result::ok) else {
        return Ok(None);
    };
    Ok(Chosen::new(&name, &row, columns)?.numbers.pop())
}

/// As [`read_examples`]; `bad_rows` decides if rows that cannot be read are errors or skipped, and counts
/// those.
pub fn read_examples_skipping(
    path: &Path,
    columns: &Columns<'_>,
    bad_rows: &mut BadRows,
) -> Result<Vec<Example>> {
    let format = format_of(path)?;
    let name = path.display().to_string();
    let mut examples = Vec::new();
    let mut memory = ExampleMemory::default();
    let mut chosen: Option<Chosen> = None;
    let mut rows = rows_of(path, format, columns.encoding)?;
    while let Some(row) = rows.next() {
        let example = row.and_then(|row| {
            let chosen = match &mut chosen {
                Some(chosen) => chosen,
                none => none.insert(Chosen::new(&name, &row, columns)?.named_by(rows.as_ref(), columns)),
            };
            Ok(chosen.example(&name, row)?)
        });
        let Some(example) = bad_rows.take(example)? else { continue };
        memory.add(example.memory_bytes(), rows.position_bytes(), || format!("{name}:{}", example.line))?;
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

/// The columns of one file by name, chosen from its first row.
pub(super) struct Chosen {
    pub(super) text: String,
    pub(super) text_pair: Option<String>,
    label: Option<String>,
    several: Option<SeveralColumns>,
    numbers: Vec<String>,
    /// The names of labels that are numbers, from the file or else from the caller; empty if numbers are
    /// labels.
    class_names: Vec<String>,
    /// True if the file itself names its classes.
    file_has_names: bool,
}

impl Chosen {
    pub(super) fn new(source: &str, row: &Row, columns: &Columns<'_>) -> Result<Self, RowError> {
        let label = columns.label_of(row);
        let trained = columns.trained;
        let of_text = Named {
            asked: columns.text_of(row),
            trained: trained.and_then(|trained| trained.text_column.as_deref()),
        };
        let of_label =
            Named { asked: label, trained: trained.and_then(|trained| trained.label_column.as_deref()) };
        let separator = columns.label_separator.or_else(|| columns.trained?.label_separator.as_deref());
        let chosen = Self {
            text: pick(source, row, of_text, &TEXT_COLUMNS, "text_column")?,
            text_pair: match columns.text_pair_of(row) {
                Some(name) if columns.text_pair.is_none() && !row.has(name) => {
                    return Err(missing_in(row, missing_pair(source, row, name)));
                }
                named => named
                    .map(|name| pick(source, row, Named::asked(name), &[], "text_pair_column"))
                    .transpose()?,
            },
            label: if columns.labelled {
                Some(pick(source, row, of_label, &LABEL_COLUMNS, "label_column")?)
            } else {
                None
            },
            several: match columns.several {
                None => None,
                Some(names) => Some(if let Some(each) = several::each(names, label, row) {
                    each
                } else {
                    if let Some(lacking) = several::lacking(names, label, row) {
                        return Err(missing_in(row, missing_label(source, row, lacking)));
                    }
                    let name = pick(source, row, of_label, &several::LABEL_COLUMNS, "label_column")?;
                    several::one(name, separator, columns.label_names)
                }),
            },
            numbers: match columns.numbers {
                None => Vec::new(),
                Some([]) => {
                    vec![pick(source, row, of_label, &NUMBER_COLUMNS, "label_column")?]
                }
                Some(names) => names
                    .iter()
                    .map(|name| pick(source, row, Named::asked(name), &[], "labels"))
                    .collect::<Result<_, _>>()?,
            },
            class_names: Vec::new(),
            file_has_names: false,
        };
        chosen.require_apart(source).map_err(|problem| RowError::File(problem.into()))?;
        Ok(chosen)
    }

    /// Returns an error if one column is used for two purposes (text, second text, label): a model that reads
    /// its label learns nothing.
    fn require_apart(&self, source: &str) -> Result<(), Problem> {
        let texts = [("text", Some(&self.text)), ("second text", self.text_pair.as_ref())];
        let golds = self.label.iter().chain(&self.numbers).map(|name| ("label", Some(name)));
        let named = texts.into_iter().chain(golds).filter_map(|(what, name)| Some((what, name?)));
        let named: Vec<(&str, &String)> = named.collect();
        for (index, (what, name)) in named.iter().enumerate() {
            let same = named[..index].iter().find(|(other, known)| known == name && other != what);
            if let Some((other, _)) = same {
                let hint = "name another column: `--text-column`, `--text-pair-column` or `--label-column`";
                let message = format!("column `{name}` is taken for the {other} and for the {what}");
                return Err(Problem::usage(message).at(source).hint(hint));
            }
        }
        Ok(())
    }

    /// Adds the names of labels that are numbers: those that the file gives them, as a Parquet file of
    /// `datasets` does, or else those of `columns`. They are not used for a model that has a number among its
    /// own labels.
    fn named_by(mut self, rows: &dyn Rows, columns: &Columns<'_>) -> Self {
        let column = self.label.as_deref().or_else(|| self.several.as_ref()?.column());
        let known = columns.several.unwrap_or(columns.known_labels);
        if !known.iter().any(|label| label.parse::<i64>().is_ok()) {
            let own = column.and_then(|column| rows.class_names(column));
            self.file_has_names = own.is_some();
            self.class_names = own.unwrap_or_else(|| columns.label_names.to_vec());
        }
        self
    }

    /// Returns the name of a label, which may be written as its number.
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
        let text = take_filled(source, &mut row, &self.text, "text")?;
        let text_pair = match &self.text_pair {
            Some(name) => Some(take_filled(source, &mut row, name, "second text")?),
            None => None,
        };
        let label = match &self.label {
            Some(name) => Some(take_filled(source, &mut row, name, "label")?.trim().to_string()),
            None => None,
        };
        let labels = match &mut self.several {
            Some(several) => several.labels(source, &mut row, self.file_has_names)?,
            None => Vec::new(),
        };
        let place = format!("{source}:{line}");
        let label = label.map(|label| self.class_name(label, &place)).transpose()?;
        let labels =
            labels.into_iter().map(|label| self.class_name(label, &place)).collect::<Result<_, _>>()?;
        let numbers =
            self.numbers.iter().map(|name| number(source, &mut row, name)).collect::<Result<_, _>>()?;
        Ok(Example { text, text_pair, label, labels, numbers, line })
    }
}

/// Names for a column.
#[derive(Clone, Copy)]
struct Named<'a> {
    /// The name that the user gave.
    asked: Option<&'a str>,
    /// The name in training.
    trained: Option<&'a str>,
}

impl<'a> Named<'a> {
    fn asked(name: &'a str) -> Self {
        Self { asked: Some(name), trained: None }
    }
}

/// The column that is asked for, or else the first of `defaults` that `row` has. An error names the column of
/// training if none is asked for.
fn pick(
    source: &str,
    row: &Row,
    Named { asked, trained }: Named<'_>,
    defaults: &[&str],
    option: &str,
) -> Result<String, RowError> {
    let found = match asked {
        Some(name) => row.has(name).then_some(name),
        None => defaults.iter().copied().find(|name| row.has(name)),
    };
    found
        .map(str::to_string)
        .ok_or_else(|| missing_in(row, missing_column(source, row, asked.or(trained), defaults, option)))
}

/// The error for a missing column: a column that the header lacks is missing in all rows.
fn missing_in(row: &Row, problem: Problem) -> RowError {
    if row.has_header() { RowError::File(problem.into()) } else { RowError::Row(problem) }
}

/// Takes a value that must not be empty.
fn take_filled(source: &str, row: &mut Row, name: &str, what: &str) -> Result<String, Problem> {
    match take(source, row, name)? {
        Some(value) if !value.trim().is_empty() => Ok(value),
        _ => Err(Problem::new(format!("{what} `{name}` is empty"))
            .at(format!("{source}:{}", row.line))
            .hint(NO_VALUE)),
    }
}

/// The problem of a label that is a number for which the file has no name.
fn unnamed(number: i64, names: usize) -> Problem {
    let most = names - 1;
    let message = format!("the label is {number}, and there are names for the numbers 0 to {most} only");
    Problem::new(message)
        .hint("name all labels in the order of their numbers; `datasets` writes -1 where a row has none: take it out")
}

/// Takes a number that the row must have.
fn number(source: &str, row: &mut Row, name: &str) -> Result<f32, Problem> {
    let place = format!("{source}:{}", row.line);
    let text = row.take_number(name).map_err(|problem| problem.clone().at(&place))?;
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else {
        return Err(Problem::new(format!("number `{name}` is empty")).at(place).hint(NO_VALUE));
    };
    match text.trim().parse::<f32>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => {
            let mut wrong =
                Problem::new(format!("column `{name}` is `{text}`, a number is wanted")).at(place);
            wrong.hint = with_decimal_point(text.trim())
                .map(|number| format!("decimals are written with a point: `{number}`"));
            Err(wrong)
        }
    }
}

/// Returns a number with a decimal comma as one with a point; `None` for any other text.
fn with_decimal_point(text: &str) -> Option<String> {
    let number = text.replacen(',', ".", 1);
    (number != text && number.parse::<f32>().is_ok_and(f32::is_finite)).then_some(number)
}

fn missing_column(source: &str, row: &Row, asked: Option<&str>, defaults: &[&str], option: &str) -> Problem {
    let there = list(row.names());
    let (message, place_line) = match asked {
        Some(name) => (format!("has no column `{name}`; there are {there}"), row.header_line),
        None => (format!("has no column {}; there are {there}", alternatives(defaults)), row.header_line),
    };
    let nested = row.nested_paths();
    let near = match asked {
        Some(name) => row
            .names()
            .filter(|there| !leads_through(row, there, name))
            .chain(nested.iter().map(String::as_str))
            .max_by(|a, b| strsim::jaro_winkler(name, a).total_cmp(&strsim::jaro_winkler(name, b)))
            .filter(|closest| strsim::jaro_winkler(name, closest) > 0.8)
            .map(|closest| format!("did you mean `{closest}`?")),
        None => row
            .names()
            .find(|there| defaults.iter().any(|name| is_form_of(name, there)))
            .map(|there| format!("if it is `{there}`: `data.{option}: {there}`")),
    };
    let outer = asked.and_then(|name| row.names().find(|there| leads_through(row, there, name)));
    let hint = near.unwrap_or_else(|| match (within_objects(&nested), outer) {
        (None, Some(outer)) => {
            format!("`{outer}` is no object in this row: give it one with such a field, or take the row out")
        }
        (Some(paths), _) => format!("name the column: `data.{option}`; {paths}"),
        (None, None) => format!("name the column: `data.{option}`"),
    });
    Problem::new(message).at(format!("{source}:{place_line}")).hint(hint)
}

/// True if `path` may be that of a field within the field `there` of a row of JSON.
fn leads_through(row: &Row, there: &str, path: &str) -> bool {
    !row.has_header() && path.strip_prefix(there).is_some_and(|rest| rest.starts_with('.'))
}

/// True if `there` is `name` in upper or lower case, or its plural.
fn is_form_of(name: &str, there: &str) -> bool {
    name.eq_ignore_ascii_case(there) || name.eq_ignore_ascii_case(there.trim_end_matches('s'))
}

/// The problem of a missing column of second texts, for a model that was trained on pairs.
fn missing_pair(source: &str, row: &Row, name: &str) -> Problem {
    let there = list(row.names());
    Problem::new(format!(
        "has no column `{name}`, whose texts the model was trained on as second ones; there are {there}"
    ))
    .at(format!("{source}:{}", row.header_line))
    .hint("name it: `--text-pair-column`; with `--text-column` alone single texts are read")
}

/// The problem of a label that is no column, where others are columns of 0 and 1.
fn missing_label(source: &str, row: &Row, name: &str) -> Problem {
    let there = list(row.names());
    Problem::new(format!("has no column `{name}`, a label of the model; there are {there}"))
        .at(format!("{source}:{}", row.header_line))
        .hint(
            "each label is a column of 0 and 1 here: add this one, or name one column of labels: \
             `data.label_column`",
        )
}

fn alternatives(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    joined(&quoted, "or")
}

#[cfg(test)]
mod tests;
