//! Guesses the columns of texts and labels in a labelled file, from their names or from the values of the
//! first rows.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use crate::recipe::{LabelColumns, TextColumns};
use crate::tasks::labelled::read::{LABEL_COLUMNS, NUMBER_COLUMNS, TEXT_COLUMNS, format_of};
use crate::tasks::labelled::several;
use base::error::Problem;
use base::fs::TextEncoding;
use base::quantity::format_count;
use data::records::{Leaf, RowFormat, leaves, rows_of};

/// Number of rows that are read for a guess.
const ROWS_READ: usize = 1000;

/// Names of columns of texts that form a pair, as in the datasets of GLUE and others.
const PAIRS: [(&str, &str); 6] = [
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
    ("text", "text_pair"),
    ("text_a", "text_b"),
    ("question", "sentence"),
];

/// Most words of the name of a column.
const WORDS_OF_A_NAME: usize = 5;

/// Fewest words that the values of a column of texts have on average.
const LEAST_WORDS_OF_A_TEXT: usize = 3;

/// Most different labels per row. A column with more different values contains texts or row numbers.
const MOST_LABELS_PER_ROW: f64 = 0.2;

/// Names of columns that number the rows.
const IDS: [&str; 3] = ["id", "index", "idx"];

/// Statistics of one column.
#[derive(Debug, Default)]
struct Column {
    name: String,
    /// True for a field within an object of JSON; its name is a path.
    is_nested: bool,
    filled: usize,
    characters: usize,
    numbers: usize,
    lists: usize,
    values: BTreeSet<String>,
}

impl Column {
    fn add(&mut self, value: &Value) {
        let text = match value {
            Value::Null => return,
            Value::String(text) => text.trim().to_string(),
            other => other.to_string(),
        };
        if text.is_empty() {
            return;
        }
        self.filled += 1;
        self.characters += text.chars().count();
        self.numbers += usize::from(text.parse::<f64>().is_ok());
        self.lists += usize::from(value.is_array() || several::list_of_text(&text).is_some());
        self.values.insert(text);
    }

    fn mean_characters(&self) -> f64 {
        self.characters as f64 / self.filled.max(1) as f64
    }

    fn is_numeric(&self) -> bool {
        self.filled > 0 && self.numbers == self.filled
    }

    /// Returns true for values of several words, which are no numbers and no lists.
    fn holds_texts(&self) -> bool {
        let words: usize = self.values.iter().map(|value| value.split_whitespace().count()).sum();
        !self.is_numeric() && self.lists == 0 && words >= LEAST_WORDS_OF_A_TEXT * self.values.len().max(1)
    }

    /// Returns true for more than one value, each of them in several rows.
    fn may_be_labels(&self) -> bool {
        let values = self.values.len();
        let most = (self.filled as f64 * MOST_LABELS_PER_ROW).max(2.0);
        values > 1 && 2 * values <= self.filled && values as f64 <= most
    }

    /// Returns true for values that are 0 or 1, and not always 1.
    fn holds_marks(&self) -> bool {
        let marks: Option<Vec<bool>> = self.values.iter().map(|value| several::one_or_zero(value)).collect();
        marks.is_some_and(|marks| marks.contains(&false))
    }

    /// Returns true for the number of a row, or of something else.
    fn is_id(&self) -> bool {
        let name = self.name.to_ascii_lowercase();
        IDS.contains(&name.as_str()) || name.ends_with("_id")
    }

    fn describe(&self) -> String {
        let values = format_count(self.values.len() as u64);
        let rows = if self.filled == ROWS_READ { " in the first 1,000 rows" } else { "" };
        format!("`{}` ({values} values of {:.0} characters{rows})", self.name, self.mean_characters())
    }
}

/// The columns of a file, in its order.
struct FileColumns(Vec<Column>);

impl FileColumns {
    /// Reads the statistics of the first rows.
    fn read(path: &Path, encoding: Option<TextEncoding>) -> Result<Self> {
        let mut columns: Vec<Column> = Vec::new();
        for row in rows_of(path, format_of(path)?, encoding)?.take(ROWS_READ) {
            let row = match row {
                Ok(row) => row,
                // The rows before it show the columns; who reads the whole file reports it.
                Err(_) if !columns.is_empty() => break,
                Err(e) => return Err(e.into()),
            };
            let place = format!("{}:{}", path.display(), row.line);
            let fields = row.into_fields().map_err(|problem| problem.at(place))?;
            for Leaf { path, is_nested, value } in leaves(&fields) {
                let known = columns.iter().position(|column| column.name == path);
                let at = known.unwrap_or_else(|| {
                    columns.push(Column { name: path, is_nested, ..Column::default() });
                    columns.len() - 1
                });
                columns[at].add(value);
            }
        }
        if columns.is_empty() {
            return Err(Problem::new("has no examples").at(path.display()).into());
        }
        Ok(Self(columns))
    }

    fn named(&self, name: &str) -> Option<&Column> {
        self.0.iter().find(|column| column.name == name)
    }

    /// The first of these names that the file has.
    fn first_of(&self, names: &[&str]) -> Option<&Column> {
        names.iter().find_map(|name| self.named(name))
    }

    /// The column with the longest texts, except those of `others`.
    fn longest_texts(&self, others: &[Option<&str>]) -> Option<&Column> {
        let texts = self.except(others).into_iter().filter(|column| !column.is_numeric());
        texts.max_by(|a, b| a.mean_characters().total_cmp(&b.mean_characters()))
    }

    /// The column with the fewest labels, except those of `others`.
    fn fewest_labels(&self, others: &[Option<&str>]) -> Option<&Column> {
        let labels = self.except(others).into_iter().filter(|column| column.may_be_labels());
        labels.min_by_key(|column| column.values.len())
    }

    /// The names of the columns with a 0 or a 1 in each row, except those of `texts` and ids. None unless two
    /// of them have both numbers; others may have only 0 in the first rows, as rare labels do.
    fn marks(&self, texts: &[Option<&str>]) -> Vec<String> {
        let rows = self.0.iter().map(|column| column.filled).max().unwrap_or_default();
        let mut marks = self.except(texts);
        marks.retain(|column| column.filled == rows && column.holds_marks() && !column.is_id());
        let with_both = marks.iter().filter(|column| column.may_be_labels()).count();
        // If the longest values are marks, there are no texts.
        let lacks_texts =
            texts.iter().flatten().any(|name| self.named(name).is_some_and(Column::holds_marks));
        if with_both < 2 || lacks_texts {
            return Vec::new();
        }
        marks.into_iter().map(|column| column.name.clone()).collect()
    }

    /// The column of the label, or the columns of 0 and 1 for each label, except those of `texts`. If
    /// `numbers` is true, the label is a number.
    fn labels(
        &self,
        path: &Path,
        known: KnownColumns<'_>,
        numbers: bool,
        texts: &[Option<&str>],
    ) -> Result<LabelColumns, Problem> {
        if let Some(lacking) = known.labels.iter().find(|name| self.named(name).is_none()) {
            let message = format!("has no column `{lacking}`, which is a label of the training file");
            let hint = "each label of that file is a column of 0 and 1 here, too";
            return Err(Problem::usage(message).at(path.display()).hint(hint));
        }
        if !known.labels.is_empty() {
            return Ok(LabelColumns::Each(known.labels.to_vec()));
        }
        let one = match (known.label, numbers) {
            (Some(name), _) => self.named(name),
            (None, true) => self.first_of(&NUMBER_COLUMNS).or_else(|| self.most_numbers(texts)),
            (None, false) => {
                let usual = self.first_of(&several::LABEL_COLUMNS);
                let marks = if usual.is_some() { Vec::new() } else { self.marks(texts) };
                if !marks.is_empty() {
                    return Ok(LabelColumns::Each(marks));
                }
                usual.or_else(|| self.fewest_labels(texts))
            }
        };
        if let Some(column) = one {
            return Ok(LabelColumns::One(column.name.clone()));
        }
        let missing = self.missing(path, known.label, "label");
        let usual = self.first_of(&NUMBER_COLUMNS).filter(|column| column.is_numeric());
        let number = usual.or_else(|| self.most_numbers(texts)).filter(|column| !column.is_id());
        Err(match number {
            Some(column) if !numbers && known.label.is_none() => missing.hint(format!(
                "name the column of the label: `--label-column NAME`; if the numbers of `{}` are to be \
                 predicted, add `--task regression`",
                column.name
            )),
            _ => missing,
        })
    }

    /// The column with the most different numbers, except those of `others`.
    fn most_numbers(&self, others: &[Option<&str>]) -> Option<&Column> {
        let numbers = self.except(others).into_iter().filter(|column| column.is_numeric());
        numbers.max_by_key(|column| column.values.len())
    }

    fn except(&self, others: &[Option<&str>]) -> Vec<&Column> {
        self.0.iter().filter(|column| !others.contains(&Some(column.name.as_str()))).collect()
    }

    fn described(&self) -> Vec<String> {
        self.0.iter().map(Column::describe).collect()
    }

    /// Returns true if the first line of a table seems to be an example: it has a text of several words, or a
    /// label of the rows below it.
    fn names_look_like_values(&self) -> bool {
        self.0.iter().any(|column| {
            let is_text = column.name.split_whitespace().count() > WORDS_OF_A_NAME;
            is_text || column.may_be_labels() && column.values.contains(&column.name)
        })
    }

    /// The error for a missing column: the column `asked` for, or one that looks like the `what`.
    fn missing(&self, path: &Path, asked: Option<&str>, what: &str) -> Problem {
        let there = self.described().join(", ");
        let message = match asked {
            Some(name) => format!("has no column `{name}`; there are {there}"),
            None => format!("no column looks like the {what}; there are {there}"),
        };
        let hint = format!("name the column of the {what}: `--{what}-column NAME`");
        Problem::usage(message).at(path.display()).hint(hint)
    }
}

/// Returns true if fine-tuning finds a column of this name without a key. If `numbers` is true, the label is
/// a number.
pub fn is_usual_name(name: &str, numbers: bool) -> bool {
    let labels = if numbers { NUMBER_COLUMNS } else { LABEL_COLUMNS };
    TEXT_COLUMNS.contains(&name) || labels.contains(&name)
}

/// Returns the columns of a file, other than `field`, that hold texts, the largest first, each with its
/// share of the characters of all texts in the first rows. `None` for a file without columns. Fields within
/// objects are no columns.
pub fn other_texts(
    path: &Path,
    field: &str,
    encoding: Option<TextEncoding>,
) -> Result<Option<Vec<(String, f64)>>> {
    if !matches!(RowFormat::of(path), Some(format) if format != RowFormat::Conll) {
        return Ok(None);
    }
    let columns = FileColumns::read(path, encoding)?;
    let mut others = columns.except(&[Some(field)]);
    others.retain(|column| column.holds_texts() && !column.is_nested);
    others.sort_by_key(|column| Reverse(column.characters));
    let own = columns.named(field).map_or(0, |column| column.characters);
    let all = own + others.iter().map(|column| column.characters).sum::<usize>();
    let shares =
        others.iter().map(|column| (column.name.clone(), column.characters as f64 / all.max(1) as f64));
    Ok(Some(shares.collect()))
}

/// Returns the first of the usual names of text columns that a file of rows has; `None` for other files.
pub fn usual_text_column(path: &Path, encoding: Option<TextEncoding>) -> Option<&'static str> {
    RowFormat::of(path).filter(|format| *format != RowFormat::Conll)?;
    let columns = FileColumns::read(path, encoding).ok()?;
    TEXT_COLUMNS.into_iter().find(|name| columns.named(name).is_some())
}

/// Names of columns that are already known, and the encoding of their file.
#[derive(Debug, Clone, Copy, Default)]
pub struct KnownColumns<'a> {
    /// Column of the (first) text.
    pub text: Option<&'a str>,
    /// Column of the second text of a pair.
    pub text_pair: Option<&'a str>,
    /// Column of the label or number.
    pub label: Option<&'a str>,
    /// The labels, if each is a column of 0 and 1; else empty.
    pub labels: &'a [String],
    /// Encoding of the file; UTF-8 if `None`.
    pub encoding: Option<TextEncoding>,
}

/// Guesses the columns of a file of labelled texts, except those that are `known`. If `numbers` is true, the
/// label is a number. Two or more columns of 0 and 1 are labels if none has a usual name. Errors list the
/// columns of the file.
pub fn guess_columns(path: &Path, known: KnownColumns<'_>, numbers: bool) -> Result<TextColumns> {
    let KnownColumns { text, text_pair, label, encoding, .. } = known;
    let columns = FileColumns::read(path, encoding)?;
    let has_header = matches!(format_of(path)?, RowFormat::Csv | RowFormat::Tsv);
    if has_header && text.or(label).is_none() && columns.names_look_like_values() {
        let names: Vec<String> = columns.0.iter().map(|column| format!("`{}`", column.name)).collect();
        return Err(Problem::new(format!(
            "the first line looks like an example, and must hold the names of the columns: {}",
            names.join(", ")
        ))
        .at(format!("{}:1", path.display()))
        .hint(
            "add a first line such as `text,label`, or name two of these: `--text-column`, `--label-column`",
        )
        .into());
    }
    if text_pair.is_some_and(|name| columns.named(name).is_none()) {
        return Err(columns.missing(path, text_pair, "text-pair").into());
    }
    let pair = PAIRS.iter().find(|(a, b)| columns.named(a).is_some() && columns.named(b).is_some());
    let first = match (text, pair) {
        (Some(name), _) => columns.named(name),
        (None, Some((first, _))) => columns.named(first),
        (None, None) => columns.first_of(&TEXT_COLUMNS).or_else(|| columns.longest_texts(&[label])),
    };
    let first = first.ok_or_else(|| columns.missing(path, text, "text"))?;
    let second = text_pair.or(pair.filter(|(one, _)| *one == first.name).map(|(_, second)| *second));
    let texts = [Some(first.name.as_str()), second];
    let labels = columns.labels(path, known, numbers, &texts)?;
    let has_lists = match &labels {
        LabelColumns::One(name) => columns.named(name).is_some_and(|column| column.lists > 0),
        LabelColumns::Each(_) => false,
    };
    Ok(TextColumns {
        text: first.name.clone(),
        text_pair: second.map(str::to_string),
        labels,
        has_lists,
        names_differ: false,
        found: columns.described(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guessed(name: &str, content: &str, numbers: bool) -> Result<(String, Option<String>, String), String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let guess = guess_columns(&path, KnownColumns::default(), numbers);
        guess.map(|of| (of.text, of.text_pair, of.labels.names().join(" "))).map_err(|e| e.to_string())
    }

    #[test]
    fn columns_are_guessed_from_their_names_or_values() {
        let usual = table("id,text,label", |n| format!("{n},a text of some words {n},{}", n % 2));
        assert_eq!(guessed("a.csv", &usual, false).unwrap(), ("text".into(), None, "label".into()));
        let own = table("nr\tReview\tStars\tShop", |n| {
            format!("{n}\tIt is a fine thing, number {n}\t{}\tshop{}", n % 5 + 1, n % 7)
        });
        assert_eq!(guessed("b.tsv", &own, false).unwrap(), ("Review".into(), None, "Stars".into()));
        let pairs = table("index,sentence1,sentence2,score", |n| format!("{n},one {n},two {n},{}.5", n % 6));
        assert_eq!(
            guessed("c.csv", &pairs, true).unwrap(),
            ("sentence1".into(), Some("sentence2".into()), "score".into())
        );
        let error = guessed("d.csv", "a,b\nx,y\nz,w\n", false).unwrap_err();
        assert!(
            error.contains("no column looks like the label") && error.contains("`--label-column"),
            "{error}"
        );
        let numbers = table("text\tscore", |n| format!("a text of some words {n}\t{n}.5"));
        let error = guessed("d.tsv", &numbers, false).unwrap_err();
        assert!(error.contains("the numbers of `score`") && error.contains("`--task regression`"), "{error}");
        let error = guessed("e.csv", "a,b\n", false).unwrap_err();
        assert!(error.ends_with("has no examples"), "{error}");
        for header in ["How did serfdom develop in Russia ?,DESC", "a short one,1"] {
            let rows = table(header, |n| format!("the text number {n},{}", ["DESC", "1"][n % 2]));
            let error = guessed("f.csv", &rows, false).unwrap_err();
            assert!(error.contains("f.csv:1: the first line looks like an example"), "{error}");
        }
    }

    #[test]
    fn columns_of_0_and_1_are_labels_where_there_are_several() {
        let toxic = table("id,comment_text,toxic,threat,insult", |n| {
            format!("{n},you wrote the comment number {n},{},0,{}", n % 2, u8::from(n % 9 == 0))
        });
        assert_eq!(labels_of("a.csv", &toxic), "toxic threat insult");
        let one = toxic.replace("insult", "label");
        assert_eq!(labels_of("b.csv", &one), "label", "a usual name comes first");
        let single = table("id,comment_text,rude,threat,seen", |n| {
            format!("{n},you wrote the comment number {n},{},0,1", n % 2)
        });
        assert_eq!(labels_of("c.csv", &single), "rude");
        let words = table("user_id,comment_text,rude,kind", |n| {
            format!("{},you wrote the comment number {n},{},{}.0", n % 2, ["True", "False"][n % 2], n / 3 % 2)
        });
        assert_eq!(labels_of("d.csv", &words), "rude kind");
    }

    /// The columns of the labels of a file whose texts are in the column `comment_text`.
    fn labels_of(name: &str, content: &str) -> String {
        let (text, _, labels) = guessed(name, content, false).unwrap();
        assert_eq!(text, "comment_text");
        labels
    }

    #[test]
    fn columns_within_objects_are_guessed_by_their_paths() {
        let rows: Vec<Value> = (0..40)
            .map(|n| {
                serde_json::json!({
                    "review": {"text": format!("a text of some words {n}"), "lang": "en"},
                    "meta": {"stars": n % 3, "source": "a.b"},
                })
            })
            .collect();
        let rows = Value::from(rows).to_string();
        assert_eq!(
            guessed("a.json", &rows, false),
            Ok(("review.text".to_string(), None, "meta.stars".to_string()))
        );
    }

    #[test]
    fn other_columns_with_texts_are_found_with_their_share() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("news.jsonl");
        let mut rows = Vec::new();
        for n in 0..9 {
            let row = serde_json::json!({
                "title": "Three short words",
                "text": "There are many more words in the text, four times.",
                "url": format!("a.b/{n}"),
                "day": format!("2018-04-2{n}"),
                "tags": ["one two three"],
                "meta": {"note": "some words within an object"},
            });
            rows.push(row.to_string());
        }
        std::fs::write(&path, rows.join("\n")).unwrap();
        for (field, expected) in [("text", ("title", 17.0 / 67.0)), ("title", ("text", 50.0 / 67.0))] {
            let found = other_texts(&path, field, None).unwrap().unwrap();
            assert_eq!(found, [(expected.0.to_string(), expected.1)]);
        }
        assert_eq!(other_texts(Path::new("book.txt"), "text", None).unwrap(), None);
    }

    /// A table of 40 rows.
    fn table(header: &str, row: fn(usize) -> String) -> String {
        std::iter::once(header.to_string()).chain((0..40).map(row)).collect::<Vec<_>>().join("\n")
    }
}
