//! Files of minimal pairs: CSV, TSV or JSONL, with BLiMP's own names of fields or short ones.

use std::path::Path;

use anyhow::Result;
use serde_json::Map;
use serde_json::Value;

use crate::error::Problem;
use crate::tasks::labelled::RowFormat;
use crate::tasks::labelled::rows::Row;
use crate::tasks::labelled::rows::Source;

/// Names of the field of the right sentence, of the wrong one, of the paradigm and of its field of grammar.
const NAMES: [&[&str]; 4] =
    [&["good", "sentence_good"], &["bad", "sentence_bad"], &["paradigm", "UID"], &["field"]];

/// Two sentences of which one is right.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// File and line, for errors.
    pub place: String,
    /// The sentence that is right.
    pub good: String,
    /// The one that is not.
    pub bad: String,
    /// What they show, where the file says so.
    pub paradigm: Option<String>,
    /// The part of grammar that it belongs to, where the file says so.
    pub field: Option<String>,
    /// All fields of the row as they are.
    pub fields: Map<String, Value>,
}

/// All pairs of a file. Errors name the line.
pub fn read_pairs(path: &Path) -> Result<Vec<Pair>> {
    let Some(format) = RowFormat::of(path) else {
        return Err(Problem::new("cannot tell the format of the file from its name")
            .at(path.display())
            .hint("name it `.jsonl`, `.csv` or `.tsv`, followed by `.gz`, `.zst` or `.bz2` where it is compressed")
            .into());
    };
    let source = Source::file(path)?;
    let name = source.name.clone();
    let pairs: Vec<Pair> = source.rows(format)?.map(|row| pair(&name, row?)).collect::<Result<_>>()?;
    if pairs.is_empty() {
        return Err(Problem::new("has no pairs").at(path.display()).into());
    }
    Ok(pairs)
}

fn pair(source: &str, row: Row) -> Result<Pair> {
    let place = format!("{source}:{}", row.line);
    let at = |problem: Problem| problem.at(&place);
    let names = NAMES.map(|names| names.iter().find(|name| row.has(name)).copied());
    let fields = row.into_fields().map_err(at)?;
    let text = |name: Option<&str>| fields.get(name?).and_then(Value::as_str).map(str::to_string);
    let sentence = |index: usize| match text(names[index]) {
        Some(text) if !text.trim().is_empty() => Ok(text),
        Some(_) => Err(at(Problem::new(format!("`{}` is empty", NAMES[index][0])))),
        None => Err(at(Problem::new(format!("has no text `{}` or `{}`", NAMES[index][0], NAMES[index][1])))
            .hint("a pair is two sentences, such as {\"good\": \"Dogs bark.\", \"bad\": \"Dogs barks.\"}")),
    };
    let (good, bad) = (sentence(0)?, sentence(1)?);
    let (paradigm, field) = (text(names[2]), text(names[3]));
    Ok(Pair { place, good, bad, paradigm, field, fields })
}
