//! Web archives (WARC): the extracted text of each page is a document, as in Common Crawl's WET files. The
//! number of the record is reported as its location.
//!
//! Fetched pages are skipped, since their text would have to be extracted from HTML.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};

use crate::corpus::Rejection;
use crate::corpus::read::Limits;
use crate::corpus::read::assembly::{Assembly, Records};
use crate::corpus::read::files::SourceFile;
use crate::corpus::read::json_object::known_names;
use crate::corpus::read::text::TextLines;
use crate::corpus::read::window::Whole;
use crate::records::lines::Lines;
use base::error::Problem;
use base::fs::TextFile;

/// Limit on the bytes of the headers of one record.
const HEADER_BYTES_MAX: usize = 1 << 16;

/// Most record types that an error lists.
const LISTED_TYPES: usize = 8;

/// Reads documents from a web archive.
pub(super) struct WarcRecords {
    whole: Whole,
    file: SourceFile,
    limits: Limits,
    current: Option<TextLines>,
    /// Number of records so far.
    number: u64,
    /// Number of records that were read, not skipped.
    read: u64,
    /// Types of the skipped records, and the number of each.
    skipped: BTreeMap<String, u64>,
}

/// Headers of a record, in the order of the file.
struct Headers(Vec<(String, String)>);

impl Headers {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Returns a description of a record that is not extracted text; `None` for extracted text.
    fn other(&self) -> Option<String> {
        let content = self.get("Content-Type").unwrap_or_default().to_ascii_lowercase();
        match self.get("WARC-Type").unwrap_or_default() {
            "conversion" if content.is_empty() || content.starts_with("text/") => None,
            "resource" if content.starts_with("text/plain") => None,
            kind if content.is_empty() => Some(format!("`{kind}`")),
            kind => Some(format!("`{kind}` ({})", content.split(';').next().unwrap_or_default())),
        }
    }
}

impl WarcRecords {
    pub(super) fn new(text: TextFile, file: &SourceFile, limits: Limits) -> Self {
        let whole = Whole::new(text);
        let file = file.clone();
        Self { whole, file, limits, current: None, number: 0, read: 0, skipped: BTreeMap::new() }
    }

    fn cannot_read(&self) -> String {
        format!("cannot read `{}`, record {}", self.file.path.display(), self.number)
    }

    fn problem(&self, message: impl Into<String>) -> Problem {
        Problem::new(message).at(format!("{}:{}", self.file.path.display(), self.number))
    }

    fn line(&self, bytes_max: usize) -> Result<Vec<u8>> {
        self.whole.line(bytes_max as u64).with_context(|| self.cannot_read())
    }

    /// Reads the headers of the next record; `None` after the last.
    fn headers(&mut self) -> Result<Option<Headers>> {
        self.number += 1;
        let first = loop {
            let line = self.line(HEADER_BYTES_MAX)?;
            if line.is_empty() {
                return Ok(None);
            }
            if !line.trim_ascii().is_empty() {
                break line;
            }
        };
        if !first.starts_with(b"WARC/") {
            let message = "here is no record of a web archive: it does not begin with `WARC/`";
            return Err(self.problem(message).hint("is `Content-Length` of the record before right?").into());
        }
        let mut headers = Vec::new();
        let mut bytes = 0;
        loop {
            let line = self.line(HEADER_BYTES_MAX + 1)?;
            bytes += line.len();
            if bytes > HEADER_BYTES_MAX {
                let message = format!("the headers of a record have more than {HEADER_BYTES_MAX} bytes");
                return Err(self.problem(message).into());
            }
            if line.is_empty() {
                return Err(self.problem("the archive is cut off in the middle of a header").into());
            }
            let text = String::from_utf8_lossy(&line).into_owned();
            let trimmed = text.trim();
            if trimmed.is_empty() {
                return Ok(Some(Headers(headers)));
            }
            match (headers.last_mut(), trimmed.split_once(':')) {
                (Some((_, value)), _) if text.starts_with([' ', '\t']) => {
                    *value = format!("{value} {trimmed}");
                }
                (_, Some((name, value))) => headers.push((name.trim().to_string(), value.trim().to_string())),
                _ => return Err(self.problem("a header of a record has no `:`").into()),
            }
        }
    }

    /// Opens a record, or counts it as skipped.
    fn open(&mut self, headers: &Headers, out: &mut Assembly) -> Result<()> {
        let length = headers.get("Content-Length").and_then(|text| text.parse().ok());
        let length: u64 =
            length.ok_or_else(|| self.problem("a record has no `Content-Length` that is a number"))?;
        let place: Arc<Path> =
            Path::new(&format!("{}, record {}", self.file.path.display(), self.number)).into();
        out.enter(self.number, Arc::clone(&place));
        let text = self.whole.window(length);
        // Each file has a `warcinfo` record about itself, which is not counted.
        if headers.get("WARC-Type") == Some("warcinfo") {
            return self.end_record();
        }
        if let Some(other) = headers.other() {
            let detail = format!("a record of type {other}");
            let uri = headers.get("WARC-Target-URI").unwrap_or_default();
            out.reject(1, length, Rejection { reason: "passed_over", detail }, uri.as_bytes());
            if self.skipped.len() < LISTED_TYPES || self.skipped.contains_key(&other) {
                *self.skipped.entry(other).or_default() += 1;
            }
            return self.end_record();
        }
        self.read += 1;
        out.set_title(self.title(headers)?);
        let lines = Lines::of(text, place, self.limits.line_bytes);
        self.current = Some(TextLines::new(lines, self.file.settings.document));
        Ok(())
    }

    /// Returns the prefix of the text: the value of a header, which some records may lack.
    fn title(&self, headers: &Headers) -> Result<Option<String>> {
        let Some(field) = &self.file.settings.title_field else { return Ok(None) };
        let value = headers.get(field);
        if value.is_none() && self.read == 1 {
            let hint = known_names("title_field", "fields", headers.0.iter().map(|(name, _)| name.as_str()));
            return Err(self.problem(format!("field `{field}` is missing")).hint(hint).into());
        }
        Ok(value.map(str::to_string))
    }

    fn end_record(&mut self) -> Result<()> {
        self.current = None;
        self.whole.skip_rest(0).with_context(|| self.cannot_read())
    }
}

impl Records for WarcRecords {
    fn advance(&mut self, out: &mut Assembly) -> Result<bool> {
        if let Some(current) = &mut self.current {
            if !current.advance(out)? {
                self.end_record()?;
            }
            return Ok(true);
        }
        if let Some(headers) = self.headers()? {
            self.open(&headers, out)?;
            return Ok(true);
        }
        if self.read == 0 && !self.skipped.is_empty() {
            let types: Vec<String> =
                self.skipped.iter().map(|(kind, count)| format!("{count} of {kind}")).collect();
            let message = format!("holds no extracted text; its records are {}", types.join(", "));
            let hint =
                "take the WET files of the crawl (records of type `conversion`), or extract the text first";
            return Err(Problem::new(message).at(self.file.path.display()).hint(hint).into());
        }
        Ok(false)
    }

    fn position_bytes(&self) -> u64 {
        self.whole.position_bytes()
    }
}
