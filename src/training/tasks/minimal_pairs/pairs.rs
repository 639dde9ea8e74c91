//! Files of minimal pairs: CSV, TSV or JSONL, with BLiMP's names of fields or shorter ones.

use std::path::Path;

use anyhow::Result;
use serde_json::{Map, Value};

use base::error::Problem;
use base::fs::TextEncoding;
use data::records::{Row, RowFormat, Source};

/// Names of the fields: correct sentence, wrong sentence, paradigm, and field of grammar.
const NAMES: [&[&str]; 4] =
    [&["good", "sentence_good"], &["bad", "sentence_bad"], &["paradigm", "UID"], &["field"]];

/// A correct and a wrong sentence.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// File and line, for errors.
    pub place: String,
    /// The correct sentence.
    pub good: String,
    /// The wrong sentence.
    pub bad: String,
    /// The phenomenon that the pair tests, if the file names it.
    pub paradigm: Option<String>,
    /// The part of grammar that the phenomenon belongs to, if the file names it.
    pub field: Option<String>,
    /// All fields of the row, unchanged.
    pub fields: Map<String, Value>,
}

/// Reads all pairs of a file, whose text is converted from `encoding` if one is given. Errors name the line.
pub fn read_pairs(path: &Path, encoding: Option<TextEncoding>) -> Result<Vec<Pair>> {
    let Some(format) = RowFormat::of(path) else {
        return Err(Problem::new("cannot tell the format of the file from its name")
            .at(path.display())
            .hint("name it `.jsonl`, `.csv` or `.tsv`, followed by `.gz`, `.zst` or `.bz2` where it is compressed")
            .into());
    };
    let source = Source::file(path, encoding)?;
    let name = source.name.clone();
    let pairs: Vec<Pair> = source.rows(format)?.map(|row| pair(&name, row?)).collect::<Result<_>>()?;
    if pairs.is_empty() {
        return Err(Problem::new("has no pairs").at(path.display()).into());
    }
    Ok(pairs)
}

fn pair(source: &str, row: Row) -> Result<Pair> {
    let place = format!("{source}:{}", row.line);
    let names = NAMES.map(|names| names.iter().find(|name| row.has(name)).copied());
    let fields = row.into_fields().map_err(|problem| problem.at(&place))?;
    let good = sentence(&fields, names[0], NAMES[0]).map_err(|problem| problem.at(&place))?;
    let bad = sentence(&fields, names[1], NAMES[1]).map_err(|problem| problem.at(&place))?;
    let paradigm = text(&fields, names[2]);
    let field = text(&fields, names[3]);
    Ok(Pair { place, good, bad, paradigm, field, fields })
}

fn text(fields: &Map<String, Value>, name: Option<&str>) -> Option<String> {
    fields.get(name?).and_then(Value::as_str).map(str::to_string)
}

/// The sentence in the field `name`, which must have one of the names `allowed`.
fn sentence(fields: &Map<String, Value>, name: Option<&str>, allowed: &[&str]) -> Result<String, Problem> {
    match text(fields, name) {
        Some(text) if !text.trim().is_empty() => Ok(text),
        Some(_) => Err(Problem::new(format!("`{}` is empty", allowed[0]))),
        None => Err(Problem::new(format!("has no text `{}` or `{}`", allowed[0], allowed[1]))
            .hint("a pair is two sentences, such as {\"good\": \"Dogs bark.\", \"bad\": \"Dogs barks.\"}")),
    }
}
