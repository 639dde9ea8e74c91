//! Finds HTML tags by their names, so that `a < b and c > d` and `<user@host>` are not taken for tags, and
//! removes them.
//!
//! No tree is built: an end tag needs no start tag.

use std::borrow::Cow;

/// Tags between lines of a page: each of them ends a line.
const BLOCKS: [&str; 56] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "br",
    "canvas",
    "caption",
    "center",
    "dd",
    "details",
    "dialog",
    "dir",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "frame",
    "frameset",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hr",
    "html",
    "legend",
    "li",
    "main",
    "menu",
    "nav",
    "noframes",
    "noscript",
    "ol",
    "optgroup",
    "option",
    "p",
    "pre",
    "section",
    "select",
    "summary",
    "table",
    "tbody",
    "tfoot",
    "thead",
    "title",
    "tr",
    "ul",
    "video",
];

/// Tags within a line.
const INLINE: [&str; 64] = [
    "a", "abbr", "acronym", "applet", "area", "audio", "b", "base", "bdi", "bdo", "big", "button", "cite",
    "code", "col", "colgroup", "data", "datalist", "del", "dfn", "em", "embed", "font", "g", "i", "iframe",
    "img", "input", "ins", "kbd", "label", "link", "map", "mark", "meta", "meter", "nobr", "object",
    "output", "param", "path", "picture", "progress", "q", "rp", "rt", "ruby", "s", "samp", "small",
    "source", "span", "strike", "strong", "sub", "sup", "svg", "template", "textarea", "time", "track", "tt",
    "u", "var",
];

/// Table cells, which are separate words.
const CELLS: [&str; 2] = ["td", "th"];
/// Tags that only allow a line break within a word.
const NOTHING: [&str; 1] = ["wbr"];

/// Tags whose content is not text.
const RAW: [&str; 2] = ["script", "style"];

/// Longest tag name that is recognized: `figcaption` and `blockquote` have ten letters; a slash may come
/// first.
const LONGEST_NAME: usize = 12;

/// Replacement of a removed tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replacement {
    LineEnd,
    Blank,
    Nothing,
}

/// A tag, a comment, a declaration, or a script with its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::corpus) struct Tag {
    /// Offset of its `<`.
    pub(in crate::corpus) start: usize,
    /// Offset after its last `>`.
    pub(in crate::corpus) end: usize,
    replacement: Replacement,
}

/// Iterates over the tags of a text.
pub(in crate::corpus) struct Tags<'a> {
    text: &'a str,
    at: usize,
    /// True after a search for `>` came to the end of the text. With this flag and the next two, no later
    /// search for the same starts, so that the time is linear.
    no_bracket: bool,
    no_comment_end: bool,
    no_raw_end: [bool; RAW.len()],
}

impl<'a> Tags<'a> {
    /// Returns an iterator over the tags of `text`.
    pub(in crate::corpus) fn new(text: &'a str) -> Self {
        Self { text, at: 0, no_bracket: false, no_comment_end: false, no_raw_end: [false; RAW.len()] }
    }

    fn tag(&mut self, start: usize) -> Option<Tag> {
        let rest = &self.text[start + 1..];
        if rest.starts_with("!--") {
            return Some(Tag { start, end: self.comment_end(start + 4)?, replacement: Replacement::Nothing });
        }
        if rest.starts_with(['!', '?']) {
            return Some(Tag { start, end: self.bracket(start + 2)?, replacement: Replacement::LineEnd });
        }
        let is_end = rest.starts_with('/');
        let rest = &rest[usize::from(is_end)..];
        let length = rest.bytes().take(LONGEST_NAME).position(|byte| !byte.is_ascii_alphanumeric())?;
        let follower = rest[length..].chars().next()?;
        if !(follower.is_whitespace() || follower == '/' || follower == '>') {
            return None;
        }
        let name = rest[..length].to_ascii_lowercase();
        let name = name.as_str();
        let raw = RAW.iter().position(|raw| *raw == name);
        let replacement = match () {
            () if INLINE.contains(&name) || NOTHING.contains(&name) => Replacement::Nothing,
            () if BLOCKS.contains(&name) || raw.is_some() => Replacement::LineEnd,
            () if CELLS.contains(&name) => Replacement::Blank,
            () => return None,
        };
        let end = self.bracket(start + 1)?;
        let end = raw.filter(|_| !is_end).and_then(|raw| self.raw_end(raw, end)).unwrap_or(end);
        Some(Tag { start, end, replacement })
    }

    fn bracket(&mut self, from: usize) -> Option<usize> {
        if self.no_bracket {
            return None;
        }
        let found = self.text[from..].find('>').map(|at| from + at + 1);
        self.no_bracket = found.is_none();
        found
    }

    fn comment_end(&mut self, from: usize) -> Option<usize> {
        if self.no_comment_end {
            return None;
        }
        let found = self.text[from..].find("-->").map(|at| from + at + 3);
        self.no_comment_end = found.is_none();
        found
    }

    /// Returns the offset after the end tag of a script or style whose content begins at `from`.
    fn raw_end(&mut self, raw: usize, from: usize) -> Option<usize> {
        if self.no_raw_end[raw] {
            return None;
        }
        let name = RAW[raw].as_bytes();
        let bytes = self.text.as_bytes();
        let last = bytes.len().saturating_sub(name.len() + 1);
        let found = (from..last).find(|&at| {
            bytes[at] == b'<'
                && bytes[at + 1] == b'/'
                && bytes[at + 2..at + 2 + name.len()].eq_ignore_ascii_case(name)
        });
        // `bracket` is not used, since it would set `no_bracket`: a missing `>` of this end tag does not mean
        // that the tags before it have none.
        let end = found.and_then(|at| self.text[at..].find('>').map(|length| at + length + 1));
        self.no_raw_end[raw] = end.is_none();
        end
    }
}

impl Iterator for Tags<'_> {
    type Item = Tag;

    fn next(&mut self) -> Option<Tag> {
        while let Some(found) = self.text[self.at..].find('<') {
            let start = self.at + found;
            if let Some(tag) = self.tag(start) {
                self.at = tag.end;
                return Some(tag);
            }
            self.at = start + 1;
        }
        None
    }
}

/// Returns the text without tags.
pub(super) fn remove(text: &str) -> Cow<'_, str> {
    let mut kept = String::new();
    let mut copied = 0;
    let mut is_open = false;
    let mut tags = Tags::new(text);
    while let Some(tag) = tags.next() {
        let between = &text[copied..tag.start];
        kept.push_str(between);
        close(&mut kept);
        is_open = leaves_open(between, is_open) || tags.no_comment_end;
        match tag.replacement {
            Replacement::LineEnd => kept.push('\n'),
            Replacement::Blank => kept.push(' '),
            // The text before and after the removed tag must not join into a new tag, comment or reference.
            Replacement::Nothing if is_open => kept.push(' '),
            Replacement::Nothing => {}
        }
        copied = tag.end;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    kept.push_str(&text[copied..]);
    Cow::Owned(kept)
}

/// If `kept` ends with the beginning of a tag, such as `<b`, inserts a blank after its `<`: otherwise the
/// replacement of the following tag would complete it.
fn close(kept: &mut String) {
    let tail = kept
        .bytes()
        .rev()
        .take(LONGEST_NAME + 1)
        .position(|byte| !(byte.is_ascii_alphanumeric() || byte == b'/'));
    let Some(at) = tail.map(|back| kept.len() - 1 - back) else { return };
    if kept.as_bytes()[at] == b'<' && at + 1 < kept.len() {
        kept.insert(at + 1, ' ');
    }
}

/// Returns true if a `<` or `&` may be continued after `text`; `was_open` is the result for the text before
/// it.
fn leaves_open(text: &str, was_open: bool) -> bool {
    match text.rfind(['<', '&']) {
        Some(at) => !text[at..].contains('>'),
        None => was_open && !text.contains('>'),
    }
}
