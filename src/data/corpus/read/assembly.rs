//! Assembles documents from the lines and records that a reader gives, cuts long ones, and counts those that
//! are left out.
//!
//! A document is cut while it is read, so that a file that is one document is read in bounded memory, no
//! matter how long.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use crate::corpus::read::Limits;
use crate::corpus::read::files::SourceFile;
use crate::corpus::{BAD_RECORD, Document, Item, Location, Rejected, Rejection};
use crate::records::utf8;
use crate::records::utf8::Decoded;
use base::error::Problem;
use base::secrets;
use config::{InvalidUtf8, OnBadRecord};

/// Reader of a format.
pub(super) trait Records {
    /// Reads one record (a line, an object, a row) into `out`, which may finish any number of documents.
    /// Returns false at the end of the file, when all documents are finished.
    fn advance(&mut self, out: &mut Assembly) -> Result<bool>;

    /// Returns the number of bytes of the file, as stored on disk, that have been read so far.
    fn position_bytes(&self) -> u64;
}

/// The document that is being assembled, and the finished items that were not taken yet.
pub(super) struct Assembly {
    path: Arc<Path>,
    source: usize,
    invalid_utf8: InvalidUtf8,
    on_bad_record: OnBadRecord,
    limits: Limits,
    /// Prefix of each document of the member, if any.
    title: Option<String>,
    /// Member of the archive that is being read: its number from 1, and its name for errors.
    member: Option<(u64, Arc<Path>)>,
    open: Option<OpenDocument>,
    ready: VecDeque<Item>,
}

/// A document that is being assembled.
struct OpenDocument {
    text: String,
    line: u64,
    was_cut: bool,
    replaced: u32,
}

/// Place of bytes in the source, for messages about them.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    /// The line on which the record begins, from 1.
    pub(super) line: u64,
    /// Name of the whole from whose start `offset` counts: `the file`, or a field.
    pub(super) whole: &'a str,
    /// Offset of the first byte.
    pub(super) offset: u64,
}

impl Assembly {
    pub(super) fn new(file: &SourceFile, limits: Limits) -> Self {
        // Reports contain the location: for an object of a bucket the URL, which is the same on every
        // machine.
        let path = match secrets::masked(&file.path.to_string_lossy()) {
            Cow::Owned(url) => Arc::from(Path::new(&url)),
            Cow::Borrowed(_) => Arc::clone(&file.path),
        };
        Self {
            path,
            source: file.source,
            invalid_utf8: file.settings.invalid_utf8,
            on_bad_record: file.settings.on_bad_record,
            limits,
            title: None,
            member: None,
            open: None,
            ready: VecDeque::new(),
        }
    }

    /// Takes the next finished item.
    pub(super) fn take(&mut self) -> Option<Item> {
        self.ready.pop_front()
    }

    pub(super) fn line_bytes_max(&self) -> usize {
        self.limits.line_bytes
    }

    pub(super) fn has_open(&self) -> bool {
        self.open.is_some()
    }

    /// Returns the location of a line for messages: in the file or, in an archive, in the member.
    pub(super) fn location(&self, line: u64) -> Location {
        let path = self.member.as_ref().map_or(&self.path, |(_, name)| name);
        Location { path: Arc::clone(path), line }
    }

    /// Returns a location as it is counted and stored; in an archive, the number of the member. Its name is
    /// not stored, since there may be millions of members.
    fn stored_location(&self, line: u64) -> Location {
        let line = self.member.as_ref().map_or(line, |(number, _)| *number);
        Location { path: Arc::clone(&self.path), line }
    }

    /// Begins member number `number`, from 1, of an archive.
    pub(super) fn enter(&mut self, number: u64, name: Arc<Path>) {
        self.member = Some((number, name));
    }

    /// Sets the prefix of the documents that are assembled from the following lines.
    pub(super) fn set_title(&mut self, title: Option<String>) {
        self.title = title;
    }

    /// Handles a record that cannot be read: fails, or counts it as left out. `beginning` is the part of it
    /// that was read.
    pub(super) fn bad_record(
        &mut self,
        line: u64,
        problem: Problem,
        bytes: u64,
        beginning: &[u8],
    ) -> Result<()> {
        if self.on_bad_record == OnBadRecord::Fail {
            return Err(problem.into());
        }
        self.reject(line, bytes, Rejection { reason: BAD_RECORD, detail: problem.message }, beginning);
        Ok(())
    }

    /// Adds a line to the open document, or opens a document with it.
    pub(super) fn append(&mut self, text: &str, line: u64, replaced: u32) {
        match &mut self.open {
            None => {
                let text =
                    self.title.as_ref().map_or_else(|| text.to_string(), |title| format!("{title}\n{text}"));
                self.open = Some(OpenDocument { text, line, was_cut: false, replaced });
            }
            Some(open) => {
                open.text.push('\n');
                open.text.push_str(text);
                open.replaced += replaced;
            }
        }
        self.cut();
    }

    /// Ends the open document, if there is one.
    pub(super) fn finish(&mut self) {
        if let Some(mut open) = self.open.take() {
            open.text.truncate(open.text.trim_end_matches('\n').len());
            self.push(open.text, open.line, open.replaced, false);
        }
    }

    /// Removes the open document; returns the line on which it begins and its text so far.
    pub(super) fn abandon(&mut self) -> Option<(u64, String)> {
        self.open.take().map(|open| (open.line, open.text))
    }

    /// Adds a document of one record: `title` (if it is not blank), a newline, `text`. A record without text
    /// counts as empty.
    pub(super) fn record(&mut self, title: Option<Decoded<'_>>, text: Option<Decoded<'_>>, line: u64) {
        let Some(text) = text.filter(|text| !text.text.trim_ascii().is_empty()) else {
            return self.reject_empty(line, 0);
        };
        let mut replaced = text.replaced;
        let mut whole = match title.filter(|title| !title.text.trim_ascii().is_empty()) {
            None => text.text.into_owned(),
            Some(title) => {
                replaced += title.replaced;
                [title.text.trim_end(), "\n", &text.text].concat()
            }
        };
        if whole.contains('\r') {
            whole = whole.replace("\r\n", "\n").replace('\r', "\n");
        }
        self.open = Some(OpenDocument { text: whole, line, was_cut: false, replaced });
        self.cut();
        self.finish();
    }

    /// Decodes bytes as text; returns `None` if the source skips invalid UTF-8, after counting it as left
    /// out.
    pub(super) fn decode<'a>(&mut self, bytes: &'a [u8], origin: Origin<'_>) -> Result<Option<Decoded<'a>>> {
        match self.try_decode(bytes, origin)? {
            Ok(decoded) => Ok(Some(decoded)),
            Err(detail) => {
                self.reject(
                    origin.line,
                    bytes.len() as u64,
                    Rejection { reason: "invalid_utf8", detail },
                    bytes,
                );
                Ok(None)
            }
        }
    }

    /// Decodes bytes as text; the inner error is the reason why the source leaves them out.
    pub(super) fn try_decode<'a>(
        &self,
        bytes: &'a [u8],
        origin: Origin<'_>,
    ) -> Result<Result<Decoded<'a>, String>> {
        match utf8::decode(bytes, self.invalid_utf8 == InvalidUtf8::Replace) {
            Ok(decoded) => Ok(Ok(decoded)),
            Err(place) => {
                let detail = format!("byte {} of {}", origin.offset + place as u64, origin.whole);
                if self.invalid_utf8 == InvalidUtf8::Skip {
                    return Ok(Err(detail));
                }
                Err(Problem::new(format!("is not UTF-8 text ({detail})"))
                    .at(self.location(origin.line))
                    .hint(format!(
                        "{}, or set `invalid_utf8` to `replace` or `skip`",
                        utf8::encoding_hint(bytes)
                    ))
                    .into())
            }
        }
    }

    /// Counts something as left out; `beginning` is the part of it that was read.
    pub(super) fn reject(&mut self, line: u64, bytes: u64, rejection: Rejection, beginning: &[u8]) {
        let location = self.stored_location(line);
        let source = self.source;
        let excerpt = utf8::excerpt(beginning);
        self.ready.push_back(Item::Rejected(Rejected { location, source, bytes, rejection, excerpt }));
    }

    pub(super) fn reject_too_long(&mut self, line: u64, bytes: u64, beginning: &[u8]) {
        let detail = format!("{bytes} bytes, at most {} are read", self.limits.line_bytes);
        self.reject(line, bytes, Rejection { reason: "line_too_long", detail }, beginning);
    }

    pub(super) fn reject_empty(&mut self, line: u64, bytes: u64) {
        self.reject(line, bytes, Rejection { reason: "empty", detail: String::new() }, b"");
    }

    /// Moves all whole pieces of a text that has grown too long to `ready`.
    fn cut(&mut self) {
        let max_bytes = self.limits.document_bytes;
        let Some(mut open) = self.open.take_if(|open| open.text.len() > max_bytes) else { return };
        let mut start = 0;
        while open.text.len() - start > max_bytes {
            let end = start + cut_place(&open.text[start..], max_bytes);
            self.push(open.text[start..end].to_string(), open.line, open.replaced, !open.was_cut);
            (open.was_cut, open.replaced) = (true, 0);
            start = end;
        }
        open.text.drain(..start);
        self.open = Some(open);
    }

    fn push(&mut self, text: String, line: u64, replaced: u32, was_cut: bool) {
        if text.trim_start().is_empty() {
            return self.reject_empty(line, text.len() as u64);
        }
        let location = self.stored_location(line);
        let source = self.source;
        self.ready.push_back(Item::Document(Document { text, location, source, was_cut, replaced }));
    }
}

/// Returns the offset at which to cut `text` so that the first part has at most `max_bytes`: before the last
/// white space, otherwise between two characters; the first part has at least one character.
fn cut_place(text: &str, max_bytes: usize) -> usize {
    let mut end = max_bytes;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    match text[..end].rfind(char::is_whitespace) {
        // White space directly after the limit is as good a place as any before it.
        _ if text[end..].starts_with(char::is_whitespace) && end > 0 => end,
        Some(place) if place > 0 => place,
        _ if end > 0 => end,
        _ => text.chars().next().map_or(0, char::len_utf8),
    }
}
