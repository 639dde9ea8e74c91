//! Finds HTML tags by the names that HTML has, so that `a < b and c > d` and `<user@host>` are left alone;
//! takes them out.
//!
//! It builds no tree: an end tag needs no beginning.

use std::borrow::Cow;

/// What stands between the lines of a page: a tag of these ends a line.
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

/// Table cells are words of their own; `wbr` is none, it only allows a break.
const CELLS: [&str; 2] = ["td", "th"];
const NOTHING: [&str; 1] = ["wbr"];

/// Their content is no text.
const RAW: [&str; 2] = ["script", "style"];

/// `figcaption` and `blockquote` have ten letters; a slash may come first.
const LONGEST_NAME: usize = 12;

/// What a tag leaves when it is taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaves {
    LineEnd,
    Blank,
    Nothing,
}

/// A tag, a comment, a declaration, or a script with its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::corpus) struct Tag {
    /// Offset of its `<`.
    pub(in crate::corpus) start: usize,
    /// Offset behind its last `>`.
    pub(in crate::corpus) end: usize,
    leaves: Leaves,
}

/// Iterates over the tags of a text.
pub(in crate::corpus) struct Tags<'a> {
    text: &'a str,
    at: usize,
    /// Once a search for one of these came to the end of the text, no later one needs to start: time stays
    /// linear.
    no_bracket: bool,
    no_comment_end: bool,
    no_raw_end: [bool; RAW.len()],
}

impl<'a> Tags<'a> {
    /// The tags of `text`.
    pub(in crate::corpus) fn new(text: &'a str) -> Self {
        Self { text, at: 0, no_bracket: false, no_comment_end: false, no_raw_end: [false; RAW.len()] }
    }

    fn tag(&mut self, start: usize) -> Option<Tag> {
        let rest = &self.text[start + 1..];
        let tag = |end, leaves| Some(Tag { start, end, leaves });
        if rest.starts_with("!--") {
            return tag(self.comment_end(start + 4)?, Leaves::Nothing);
        }
        if rest.starts_with(['!', '?']) {
            return tag(self.bracket(start + 2)?, Leaves::LineEnd);
        }
        let is_end = rest.starts_with('/');
        let rest = &rest[usize::from(is_end)..];
        let length = rest.bytes().take(LONGEST_NAME).position(|byte| !byte.is_ascii_alphanumeric())?;
        let follower = rest[length..].chars().next()?;
        if !(follower.is_whitespace() || follower == '/' || follower == '>') {
            return None;
        }
        let name = rest[..length].to_ascii_lowercase();
        let is_one_of = |names: &[&str]| names.contains(&name.as_str());
        let raw = RAW.iter().position(|raw| *raw == name);
        let leaves = match () {
            () if is_one_of(&INLINE) || is_one_of(&NOTHING) => Leaves::Nothing,
            () if is_one_of(&BLOCKS) || raw.is_some() => Leaves::LineEnd,
            () if is_one_of(&CELLS) => Leaves::Blank,
            () => return None,
        };
        let end = self.bracket(start + 1)?;
        match raw.filter(|_| !is_end).and_then(|raw| self.raw_end(raw, end)) {
            Some(end) => tag(end, leaves),
            None => tag(end, leaves),
        }
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

    /// Behind the end tag of a script or style whose content begins at `from`.
    fn raw_end(&mut self, raw: usize, from: usize) -> Option<usize> {
        if self.no_raw_end[raw] {
            return None;
        }
        let name = RAW[raw].as_bytes();
        let bytes = self.text.as_bytes();
        let is_end = |at: usize| {
            bytes[at + 1] == b'/' && bytes[at + 2..at + 2 + name.len()].eq_ignore_ascii_case(name)
        };
        let last = bytes.len().saturating_sub(name.len() + 1);
        let found = (from..last).find(|&at| bytes[at] == b'<' && is_end(at));
        // Not `bracket`: that none closes this tag says nothing about the tags before it.
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

/// The text without tags.
pub(super) fn remove(text: &str) -> Cow<'_, str> {
    let (mut kept, mut copied, mut is_open) = (String::new(), 0, false);
    let mut tags = Tags::new(text);
    while let Some(tag) = tags.next() {
        let between = &text[copied..tag.start];
        kept.push_str(between);
        close(&mut kept);
        is_open = leaves_open(between, is_open) || tags.no_comment_end;
        match tag.leaves {
            Leaves::LineEnd => kept.push('\n'),
            Leaves::Blank => kept.push(' '),
            // What stands before must not grow together with what follows into a new tag, comment or
            // reference.
            Leaves::Nothing if is_open => kept.push(' '),
            Leaves::Nothing => {}
        }
        copied = tag.end;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    kept.push_str(&text[copied..]);
    Cow::Owned(kept)
}

/// Where `kept` ends in the beginning of a tag, `<b`, what a tag behind it leaves would complete it: a blank
/// keeps it text.
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

/// Whether a `<` or `&` waits for more behind `text`, given whether one did before it.
fn leaves_open(text: &str, was_open: bool) -> bool {
    match text.rfind(['<', '&']) {
        Some(at) => !text[at..].contains('>'),
        None => was_open && !text.contains('>'),
    }
}
