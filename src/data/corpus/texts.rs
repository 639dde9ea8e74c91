//! Extracts the texts of a file that is not a source of the corpus: an evaluation file, or examples of good
//! text.
//!
//! Columns and fields are not selected by name: any of them may hold text that a model must not see.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value as Json;

use crate::records::conversion;
use crate::records::json::without_nan;
use base::error::Problem;
use base::fs;

/// Limit on reading a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Most {
    /// Read all of the file; more decompressed bytes than this are an error.
    All(u64),
    /// Read at most this many decompressed bytes, up to the end of a line.
    Beginning(u64),
}

/// Calls `take` with every field of a .csv or .tsv, every text of a .json or .jsonl, or every line of another
/// file; each may be compressed. Errors name the file and the line.
pub(super) fn for_each_text(path: &Path, most: Most, mut take: impl FnMut(&str)) -> Result<()> {
    let text = read(path, most)?;
    let plain = fs::without_compression(path);
    match plain.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).as_deref() {
        Some("csv") => table(path, &text, b',', &mut take),
        Some("tsv") => table(path, &text, b'\t', &mut take),
        Some("jsonl" | "ndjson") => {
            for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                let json = json_of(line).map_err(|e| not_json(path, index + 1, &e))?;
                strings(&json, &mut take);
            }
            Ok(())
        }
        Some("json") => {
            let json = json_of(&text).map_err(|e| not_json(path, e.line(), &e))?;
            strings(&json, &mut take);
            Ok(())
        }
        _ => {
            text.lines().for_each(take);
            Ok(())
        }
    }
}

/// Parses JSON; also accepts the `NaN` that Python's `json` module writes.
fn json_of(text: &str) -> serde_json::Result<Json> {
    let read = serde_json::from_str(text);
    read.or_else(|e| without_nan(text).and_then(|text| serde_json::from_str(&text).ok()).ok_or(e))
}

fn not_json(path: &Path, line: usize, error: &serde_json::Error) -> Problem {
    Problem::new(format!("is not JSON: {error}")).at(format!("{}:{line}", path.display()))
}

fn read(path: &Path, most: Most) -> Result<String> {
    let (Most::All(limit) | Most::Beginning(limit)) = most;
    let mut bytes = Vec::new();
    // One more byte than the limit shows that the file is longer.
    let mut file = fs::open_text(path)?.take(limit + 1);
    file.read_to_end(&mut bytes).with_context(|| format!("cannot read `{}`", path.display()))?;
    if bytes.len() as u64 > limit {
        if let Most::All(_) = most {
            let message = format!("holds more than {limit} bytes, the most that is read of such a file");
            return Err(Problem::usage(message)
                .at(path.display())
                .hint("split it, or name the part that matters")
                .into());
        }
        let end = bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
        bytes.truncate(end);
    }
    let text = String::from_utf8(bytes).map_err(|e| {
        Problem::usage(format!("is not UTF-8 text (byte {})", e.utf8_error().valid_up_to()))
            .at(path.display())
            .hint(conversion(e.as_bytes()))
    })?;
    let text = text.strip_prefix('\u{feff}').map(str::to_string).unwrap_or(text);
    Ok(if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text })
}

fn table(path: &Path, text: &str, delimiter: u8, take: &mut impl FnMut(&str)) -> Result<()> {
    // Tab-separated files in this field rarely use quoting, and contain unpaired quotation marks.
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter)
        .quoting(delimiter == b',')
        .from_reader(text.as_bytes());
    let mut record = csv::StringRecord::new();
    while reader
        .read_record(&mut record)
        .map_err(|e| Problem::new(format!("is not a table: {e}")).at(path.display()))?
    {
        record.iter().for_each(&mut *take);
    }
    Ok(())
}

fn strings(json: &Json, take: &mut impl FnMut(&str)) {
    match json {
        Json::String(text) => take(text),
        Json::Array(items) => items.iter().for_each(|item| strings(item, take)),
        Json::Object(fields) => fields.values().for_each(|field| strings(field, take)),
        _ => {}
    }
}
