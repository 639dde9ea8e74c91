//! Lines of one file become documents: a file, a paragraph, a line, or a field of a line; long ones are cut.
//!
//! A document is cut while it is read, so a file of any length that counts as one document is read in bounded memory.

use std::collections::VecDeque;

use anyhow::Result;

use crate::config::data::DocumentUnit;
use crate::corpus::Counts;
use crate::corpus::Document;
use crate::corpus::Location;
use crate::corpus::files::Reading;
use crate::corpus::files::SourceFile;
use crate::corpus::jsonl;
use crate::corpus::lines::Lines;
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
            assembly: Assembly { max_document_bytes, open: None, ready: VecDeque::new() },
            finished: false,
        })
    }

    pub(super) fn position_bytes(&self) -> u64 {
        self.lines.position_bytes()
    }

    /// The next document, counted in `counts`; `None` after the last.
    pub(super) fn advance(&mut self, counts: &mut Counts) -> Result<Option<Document>> {
        loop {
            if let Some(document) = self.assembly.ready.pop_front() {
                counts.documents += 1;
                counts.bytes += document.text.len() as u64;
                return Ok(Some(document));
            }
            if self.finished {
                return Ok(None);
            }
            self.read_line(counts)?;
        }
    }

    fn read_line(&mut self, counts: &mut Counts) -> Result<()> {
        let here = Location { line: self.lines.location().line + 1, ..self.lines.location() };
        let Some(line) = self.lines.advance()? else {
            self.finished = true;
            // A file of blank lines only is an empty document; the end of the last paragraph is no document.
            if self.assembly.open.is_none() && self.reading == Reading::Text(DocumentUnit::File) {
                counts.empty += 1;
            }
            self.assembly.finish(counts);
            return Ok(());
        };
        let blank = line.trim_ascii().is_empty();
        match &self.reading {
            Reading::Text(DocumentUnit::File) => {
                if !blank || self.assembly.open.is_some() {
                    self.assembly.append(line, here, counts);
                }
            }
            Reading::Text(DocumentUnit::Paragraph) if blank => self.assembly.finish(counts),
            Reading::Text(DocumentUnit::Paragraph) => self.assembly.append(line, here, counts),
            Reading::Text(DocumentUnit::Line) => {
                self.assembly.append(line, here, counts);
                self.assembly.finish(counts);
            }
            Reading::Jsonl(_) if blank => {}
            Reading::Jsonl(field) => {
                let text = jsonl::text_of(line, field).map_err(|fault| {
                    let place = fault.column.map_or_else(|| here.to_string(), |column| format!("{here}:{column}"));
                    Problem::new(fault.message).at(place)
                })?;
                self.assembly.append(&text, here, counts);
                self.assembly.finish(counts);
            }
        }
        Ok(())
    }
}

/// The document that is being put together, and the finished pieces that nobody took yet.
struct Assembly {
    max_document_bytes: usize,
    open: Option<Open>,
    ready: VecDeque<Document>,
}

struct Open {
    text: String,
    start: Location,
    was_cut: bool,
}

impl Assembly {
    fn append(&mut self, line: &str, here: Location, counts: &mut Counts) {
        match &mut self.open {
            None => self.open = Some(Open { text: line.to_string(), start: here, was_cut: false }),
            Some(open) => {
                open.text.push('\n');
                open.text.push_str(line);
            }
        }
        self.cut(counts);
    }

    /// Moves all whole pieces of a text that has grown too long to `ready`.
    fn cut(&mut self, counts: &mut Counts) {
        let Some(open) = self.open.as_mut().filter(|open| open.text.len() > self.max_document_bytes) else { return };
        counts.cut += u64::from(!open.was_cut);
        open.was_cut = true;
        let mut start = 0;
        while open.text.len() - start > self.max_document_bytes {
            let end = start + cut_place(&open.text[start..], self.max_document_bytes);
            push(&mut self.ready, &open.text[start..end], &open.start, counts);
            start = end;
        }
        open.text.drain(..start);
    }

    fn finish(&mut self, counts: &mut Counts) {
        if let Some(open) = self.open.take() {
            push(&mut self.ready, open.text.trim_end_matches('\n'), &open.start, counts);
        }
    }
}

fn push(ready: &mut VecDeque<Document>, text: &str, start: &Location, counts: &mut Counts) {
    if text.trim().is_empty() {
        counts.empty += 1;
    } else {
        ready.push_back(Document { text: text.to_string(), location: start.clone() });
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
