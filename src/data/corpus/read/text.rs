//! Plain text: a document is a file, a paragraph, a line or the text between `<doc>` tags.
//!
//! A line over the limit is left out, and its document continues without it. With `skip`, a line that is not
//! UTF-8 is left out, except if documents are paragraphs: then the whole paragraph is left out, since it
//! would not make sense without the line (if the paragraph is longer than a document may be, the pieces
//! already cut off are kept).

use anyhow::Result;

use crate::corpus::read::assembly::{Assembly, Origin, Records};
use crate::corpus::{Rejection, clean};
use crate::records::lines::{Line, Lines};
use crate::records::utf8::EXCERPT_BYTES;
use base::error::Problem;
use config::DocumentUnit;

/// Reads documents from plain text.
pub(super) struct TextLines {
    lines: Lines,
    documents: Documents,
}

/// Groups lines into documents.
struct Documents {
    unit: DocumentUnit,
    /// The current paragraph, if it is left out.
    spoiled: Option<Spoiled>,
    tag: Tag,
}

/// A paragraph that is left out because of one of its lines.
struct Spoiled {
    line: u64,
    bytes: u64,
    detail: String,
    beginning: Vec<u8>,
}

/// Position of a line relative to `<doc>` and `</doc>`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    /// Before the first `<doc>`.
    None,
    /// After a `<doc>` on this line.
    Open(u64),
    /// After a `</doc>`.
    Closed,
}

impl TextLines {
    pub(super) fn new(lines: Lines, unit: DocumentUnit) -> Self {
        Self { lines, documents: Documents { unit, spoiled: None, tag: Tag::None } }
    }
}

impl Records for TextLines {
    fn advance(&mut self, out: &mut Assembly) -> Result<bool> {
        if let Some(line) = self.lines.advance()? {
            self.documents.line(&line, out)?;
            return Ok(true);
        }
        self.documents.end(self.lines.number(), out);
        Ok(false)
    }

    fn position_bytes(&self) -> u64 {
        self.lines.position_bytes()
    }
}

impl Documents {
    fn line(&mut self, line: &Line<'_>, out: &mut Assembly) -> Result<()> {
        if line.is_too_long {
            out.reject_too_long(line.number, line.length, line.bytes);
            return Ok(());
        }
        let is_blank = clean::shows_nothing(line.bytes);
        match self.unit {
            DocumentUnit::File if is_blank && !out.has_open() => Ok(()),
            DocumentUnit::File => append(line, out),
            DocumentUnit::Line => {
                append(line, out)?;
                out.finish();
                Ok(())
            }
            DocumentUnit::Paragraph if is_blank => {
                self.end_paragraph(out);
                Ok(())
            }
            DocumentUnit::Paragraph => self.paragraph_line(line, out),
            DocumentUnit::DocTag => self.tagged_line(line, is_blank, out),
        }
    }

    fn paragraph_line(&mut self, line: &Line<'_>, out: &mut Assembly) -> Result<()> {
        if let Some(spoiled) = &mut self.spoiled {
            spoiled.bytes += 1 + line.length;
            return Ok(());
        }
        match out.try_decode(line.bytes, origin(line))? {
            Ok(decoded) => out.append(&decoded.text, line.number, decoded.replaced),
            Err(detail) => {
                let (start, mut beginning) =
                    out.abandon().map_or((line.number, Vec::new()), |(start, text)| {
                        (start, format!("{text}\n").into_bytes())
                    });
                let bytes = beginning.len() as u64 + line.length;
                beginning.extend(&line.bytes[..line.bytes.len().min(EXCERPT_BYTES)]);
                self.spoiled = Some(Spoiled { line: start, bytes, detail, beginning });
            }
        }
        Ok(())
    }

    fn end_paragraph(&mut self, out: &mut Assembly) {
        out.finish();
        if let Some(spoiled) = self.spoiled.take() {
            let rejection = Rejection { reason: "invalid_utf8", detail: spoiled.detail };
            out.reject(spoiled.line, spoiled.bytes, rejection, &spoiled.beginning);
        }
    }

    /// Reads a line in the format of WikiExtractor: each tag has its own line, or both are on one line with
    /// the text between them.
    fn tagged_line(&mut self, line: &Line<'_>, is_blank: bool, out: &mut Assembly) -> Result<()> {
        let trimmed = line.bytes.trim_ascii();
        if let Some(rest) = rest_after_tag(trimmed, matches!(self.tag, Tag::Open(_))) {
            self.close(out);
            self.tag = Tag::Open(line.number);
            return self.after_tag(line, rest, out);
        }
        let before = trimmed.strip_suffix(b"</doc>").filter(|_| self.tag != Tag::None);
        if let (Some(before), Tag::Open(_)) = (before, self.tag) {
            return self.last_line(line, before, out);
        }
        if before.is_some_and(<[u8]>::is_empty) {
            self.close(out);
        } else if matches!(self.tag, Tag::Open(_)) {
            if !is_blank || out.has_open() {
                append(line, out)?;
            }
        } else if is_blank {
            // A blank line between two documents is ignored.
        } else if self.tag == Tag::Closed {
            let detail = "behind `</doc>`".to_string();
            out.reject(line.number, line.length, Rejection { reason: "outside_doc_tag", detail }, line.bytes);
        } else {
            return Err(Problem::new("here is text before the first line `<doc ...>`")
                .at(out.location(line.number))
                .hint("set `document` to `file`, `paragraph` or `line` if the file has no such lines")
                .into());
        }
        Ok(())
    }

    /// Reads the rest of the line after `<doc ...>`: nothing, the beginning of the text, all of the text, or
    /// further documents.
    fn after_tag(&mut self, line: &Line<'_>, rest: &[u8], out: &mut Assembly) -> Result<()> {
        let end = rest.windows(6).position(|part| part == b"</doc>");
        let (text, after) =
            end.map_or((rest, None), |end| (&rest[..end], Some(rest[end + 6..].trim_ascii())));
        if !clean::shows_nothing(text) {
            append(&part_of(line, text), out)?;
        }
        let Some(after) = after else { return Ok(()) };
        self.close(out);
        if after.is_empty() { Ok(()) } else { self.tagged_line(&part_of(line, after), false, out) }
    }

    /// Reads a line of text that ends with `</doc>`.
    fn last_line(&mut self, line: &Line<'_>, before: &[u8], out: &mut Assembly) -> Result<()> {
        if !clean::shows_nothing(before) {
            append(&part_of(line, before), out)?;
        }
        self.close(out);
        Ok(())
    }

    fn close(&mut self, out: &mut Assembly) {
        if let Tag::Open(line) = self.tag {
            if out.has_open() {
                out.finish();
            } else {
                out.reject_empty(line, 0);
            }
            self.tag = Tag::Closed;
        }
    }

    fn end(&mut self, line: u64, out: &mut Assembly) {
        match self.unit {
            // A file that has only blank lines is an empty document.
            DocumentUnit::File if !out.has_open() => out.reject_empty(line, 0),
            DocumentUnit::File | DocumentUnit::Line => out.finish(),
            DocumentUnit::Paragraph => self.end_paragraph(out),
            DocumentUnit::DocTag => self.close(out),
        }
    }
}

/// Returns the rest of a line that begins with `<doc>` or `<doc ...>`. In an open document, another one
/// begins only on a line that consists of this tag, or ends with `</doc>`.
fn rest_after_tag(trimmed: &[u8], is_open: bool) -> Option<&[u8]> {
    let rest = trimmed.strip_prefix(b"<doc")?;
    let end = rest.iter().position(|byte| *byte == b'>').filter(|end| *end == 0 || rest[0] == b' ')?;
    let rest = &rest[end + 1..];
    if trimmed.ends_with(b">") && !trimmed.ends_with(b"</doc>") {
        return Some(b"");
    }
    (!is_open || trimmed.ends_with(b"</doc>")).then_some(rest)
}

/// Returns a line with the position of `line` and the bytes `part`, which must be a part of it.
fn part_of<'a>(line: &Line<'_>, part: &'a [u8]) -> Line<'a> {
    Line { bytes: part, length: part.len() as u64, ..*line }
}

fn origin<'a>(line: &Line<'_>) -> Origin<'a> {
    Origin { line: line.number, whole: "the file", offset: line.offset }
}

fn append(line: &Line<'_>, out: &mut Assembly) -> Result<()> {
    if let Some(decoded) = out.decode(line.bytes, origin(line))? {
        out.append(&decoded.text, line.number, decoded.replaced);
    }
    Ok(())
}
