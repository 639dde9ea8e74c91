//! Lines of one file become documents: a file, a paragraph, a line, or a field of a line; long ones are cut.
//!
//! A document is cut while it is read, so a file of any length that counts as one document is read in bounded memory.

use std::collections::VecDeque;

use anyhow::Result;

use crate::config::DocumentUnit;
use crate::corpus::Document;
use crate::corpus::Item;
use crate::corpus::Location;
use crate::corpus::Rejected;
use crate::corpus::Rejection;
use crate::corpus::read::files::Reading;
use crate::corpus::read::files::SourceFile;
use crate::corpus::read::jsonl;
use crate::corpus::read::lines::Lines;
use crate::error::Problem;

/// The documents of one file.
pub(super) struct FileDocuments {
    lines: Lines,
    reading: Reading,
    assembly: Assembly,
    finished: bool,
}

impl FileDocuments {
    pub(super) fn open(file: &SourceFile, max_document_bytes: usize) -> Result<Self> {
        Ok(Self {
            lines: Lines::open(&file.path)?,
            reading: file.reading.clone(),
            assembly: Assembly { source: file.source, max_document_bytes, open: None, ready: VecDeque::new() },
            finished: false,
        })
    }

    pub(super) fn position_bytes(&self) -> u64 {
        self.lines.position_bytes()
    }

    /// The next item; `None` after the last.
    pub(super) fn advance(&mut self) -> Result<Option<Item>> {
        loop {
            if let Some(item) = self.assembly.ready.pop_front() {
                return Ok(Some(item));
            }
            if self.finished {
                return Ok(None);
            }
            self.read_line()?;
        }
    }

    fn read_line(&mut self) -> Result<()> {
        let here = Location { line: self.lines.location().line + 1, ..self.lines.location() };
        let Some(line) = self.lines.advance()? else {
            self.finished = true;
            // A file of blank lines only is an empty document; the end of the last paragraph is no document.
            if self.assembly.open.is_none() && self.reading == Reading::Text(DocumentUnit::File) {
                self.assembly.push("", &here, false);
            }
            self.assembly.finish();
            return Ok(());
        };
        let blank = line.trim_ascii().is_empty();
        match &self.reading {
            Reading::Text(DocumentUnit::File) => {
                if !blank || self.assembly.open.is_some() {
                    self.assembly.append(line, here);
                }
            }
            Reading::Text(DocumentUnit::Paragraph | DocumentUnit::DocTag) if blank => self.assembly.finish(),
            Reading::Text(DocumentUnit::Paragraph | DocumentUnit::DocTag) => self.assembly.append(line, here),
            Reading::Text(DocumentUnit::Line) => {
                self.assembly.append(line, here);
                self.assembly.finish();
            }
            Reading::Jsonl(_) if blank => {}
            Reading::Jsonl(field) => {
                let text = jsonl::text_of(line, field).map_err(|fault| {
                    let place = fault.column.map_or_else(|| here.to_string(), |column| format!("{here}:{column}"));
                    Problem::new(fault.message).at(place)
                })?;
                self.assembly.append(&text, here);
                self.assembly.finish();
            }
        }
        Ok(())
    }
}

/// The document that is being put together, and the finished pieces that nobody took yet.
struct Assembly {
    source: usize,
    max_document_bytes: usize,
    open: Option<Open>,
    ready: VecDeque<Item>,
}

struct Open {
    text: String,
    start: Location,
    was_cut: bool,
}

impl Assembly {
    fn append(&mut self, line: &str, here: Location) {
        match &mut self.open {
            None => self.open = Some(Open { text: line.to_string(), start: here, was_cut: false }),
            Some(open) => {
                open.text.push('\n');
                open.text.push_str(line);
            }
        }
        self.cut();
    }

    /// Moves all whole pieces of a text that has grown too long to `ready`.
    fn cut(&mut self) {
        let Some(mut open) = self.open.take_if(|open| open.text.len() > self.max_document_bytes) else { return };
        let mut start = 0;
        while open.text.len() - start > self.max_document_bytes {
            let end = start + cut_place(&open.text[start..], self.max_document_bytes);
            self.push(&open.text[start..end], &open.start, !open.was_cut);
            open.was_cut = true;
            start = end;
        }
        open.text.drain(..start);
        self.open = Some(open);
    }

    fn finish(&mut self) {
        if let Some(open) = self.open.take() {
            self.push(open.text.trim_end_matches('\n'), &open.start, false);
        }
    }

    fn push(&mut self, text: &str, start: &Location, was_cut: bool) {
        let (location, source) = (start.clone(), self.source);
        self.ready.push_back(if text.trim().is_empty() {
            let rejection = Rejection { reason: "empty", detail: String::new() };
            Item::Rejected(Rejected { location, source, bytes: text.len() as u64, rejection, excerpt: String::new() })
        } else {
            Item::Document(Document { text: text.to_string(), location, source, was_cut, replaced: 0 })
        });
    }
}

/// Where to cut `text` so that the first part has at most `max_bytes`: before the last white space, else between two
/// characters; at least one character is taken.
fn cut_place(text: &str, max_bytes: usize) -> usize {
    let mut end = max_bytes;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    match text[..end].rfind(char::is_whitespace) {
        // White space right behind the limit is as good a place as any before it.
        _ if text[end..].starts_with(char::is_whitespace) && end > 0 => end,
        Some(place) if place > 0 => place,
        _ if end > 0 => end,
        _ => text.chars().next().map_or(0, char::len_utf8),
    }
}
