//! Sentences in columns: a word per line with its tag in another column, and an empty line after each
//! sentence.
//!
//! Columns are separated by single tabs, or by any number of blanks; the first line decides for the whole
//! file.

use std::path::Path;

use anyhow::Result;

use crate::tasks::labelled::sentences::{Sentence, SentenceColumns, WORDS_MAX, too_many_words};
use crate::tasks::labelled::tags::is_tag;
use base::error::Problem;
use base::words::counted;
use data::records::{Line, Lines, RowError, Source, encoding_hint};

/// Longest line; no word is that long.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Word of the line that starts a document in the files of CoNLL-2003.
const DOCUMENT_START: &str = "-DOCSTART-";

/// Reads sentences line by line.
pub(super) struct ColumnLines {
    name: String,
    lines: Lines,
    token: i64,
    /// Column of the tags, if they are read.
    tag: Option<i64>,
    layout: Option<Layout>,
    /// True after a bad line, until the rest of its sentence is skipped.
    in_bad_sentence: bool,
}

/// Layout of the first line with a word, which the other lines have to match.
#[derive(Debug, Clone, Copy)]
struct Layout {
    is_tabs: bool,
    columns: usize,
    line: u64,
}

/// The content of a line.
enum Row {
    Word {
        word: String,
        tag: Option<String>,
        line: u64,
    },
    /// An empty line, or the start of a document.
    Break,
    Comment,
}

impl ColumnLines {
    pub(super) fn new(source: Source, columns: &SentenceColumns<'_>) -> Self {
        let Source { name, text, .. } = source;
        let lines = Lines::of(text, Path::new(&name).into(), LINE_BYTES_MAX);
        let tag = columns.tagged.then_some(columns.tag);
        Self { name, lines, token: columns.token, tag, layout: None, in_bad_sentence: false }
    }

    pub(super) fn position_bytes(&self) -> u64 {
        self.lines.position_bytes()
    }

    /// Returns the next sentence; `None` at the end of the file. After an error, continues with the sentence
    /// after the bad one.
    pub(super) fn next_sentence(&mut self) -> Result<Option<Sentence>, RowError> {
        if std::mem::take(&mut self.in_bad_sentence) {
            self.skip_sentence()?;
        }
        let Self { name, lines, token, tag, layout, in_bad_sentence } = self;
        let mut sentence = Sentence::default();
        while let Some(line) = lines.advance()? {
            let number = line.number;
            let read = match row(&line, *token, *tag, layout) {
                Ok(Row::Word { .. }) if sentence.words.len() == WORDS_MAX => Err(too_many_words()),
                read => read,
            };
            *in_bad_sentence = read.is_err();
            match read.map_err(|problem| problem.at(format!("{name}:{number}")))? {
                Row::Comment => {}
                Row::Break if sentence.words.is_empty() => {}
                Row::Break => return Ok(Some(sentence)),
                Row::Word { word, tag, line } => {
                    if sentence.words.is_empty() {
                        sentence.line = line;
                    }
                    sentence.words.push(word);
                    sentence.tags.extend(tag);
                    sentence.lines.push(line);
                }
            }
        }
        Ok((!sentence.words.is_empty()).then_some(sentence))
    }

    /// Skips the rest of the sentence.
    fn skip_sentence(&mut self) -> Result<()> {
        while let Some(line) = self.lines.advance()? {
            if is_break(line.bytes) {
                break;
            }
        }
        Ok(())
    }
}

/// True for an empty line and for the start of a document.
fn is_break(line: &[u8]) -> bool {
    line.trim_ascii().is_empty() || line.starts_with(DOCUMENT_START.as_bytes())
}

fn row(line: &Line<'_>, token: i64, tag: Option<i64>, layout: &mut Option<Layout>) -> Result<Row, Problem> {
    if line.is_too_long {
        return Err(Problem::new(format!("the line is longer than {LINE_BYTES_MAX} bytes")));
    }
    let text = std::str::from_utf8(line.bytes).map_err(|e| {
        Problem::new(format!("is not UTF-8 text (byte {} of the line)", e.valid_up_to() + 1))
            .hint(encoding_hint(line.bytes))
    })?;
    if is_break(line.bytes) {
        return Ok(Row::Break);
    }
    if is_comment(text, layout.as_ref()) {
        return Ok(Row::Comment);
    }
    let known = layout.unwrap_or_else(|| Layout::new(text, line.number));
    let columns = known.columns_of(text)?;
    let word = pick(&columns, token, "token_column")?;
    let tag = tag.map(|tag| pick(&columns, tag, "tag_column")).transpose()?;
    if tag.is_some() && columns.len() < 2 {
        return Err(Problem::new("has one column, a word and its tag are wanted")
            .hint("a tab or blanks stand between them"));
    }
    *layout = Some(known);
    Ok(Row::Word { word: word.to_string(), tag: tag.map(str::to_string), line: line.number })
}

/// A line of `#` and a blank is a comment, unless it has the columns of a line whose word is `#`, with a tag.
fn is_comment(text: &str, layout: Option<&Layout>) -> bool {
    let is_alone = text == "#" && layout.is_none_or(|layout| layout.columns > 1);
    if !text.starts_with("# ") || text.contains('\t') {
        return is_alone;
    }
    let columns: Vec<&str> = text.split_ascii_whitespace().collect();
    let as_many = layout.is_none_or(|layout| !layout.is_tabs && layout.columns == columns.len());
    !(as_many && columns.len() > 1 && columns.last().is_some_and(|tag| is_tag(tag)))
}

impl Layout {
    fn new(text: &str, line: u64) -> Self {
        let is_tabs = text.contains('\t');
        let columns = if is_tabs { text.split('\t').count() } else { text.split_ascii_whitespace().count() };
        Self { is_tabs, columns, line }
    }

    /// Splits a line into columns, which must be as many as those of the first line.
    fn columns_of<'a>(&self, text: &'a str) -> Result<Vec<&'a str>, Problem> {
        let first = self.line;
        let has_tab = text.contains('\t');
        if self.columns > 1 && self.is_tabs != has_tab {
            let (here, there) = if has_tab { ("a tab", "blanks") } else { ("no tab", "tabs") };
            let message = format!("has {here} between its columns, line {first} has {there}");
            return Err(Problem::new(message).hint("separate all columns of the file in one way"));
        }
        let columns: Vec<&str> = if self.is_tabs {
            text.split('\t').map(str::trim_ascii).collect()
        } else {
            text.split_ascii_whitespace().collect()
        };
        if columns.len() == self.columns {
            return Ok(columns);
        }
        let here = counted(columns.len(), "column");
        let message = format!("has {here}, line {first} has {}", counted(self.columns, "column"));
        Err(Problem::new(message).hint("an empty line ends a sentence, and `# ` begins a comment"))
    }
}

/// Returns the column with this number, counted from 1, or from the end if negative; `key` is its key in the
/// configuration.
fn pick<'a>(columns: &[&'a str], column: i64, key: &str) -> Result<&'a str, Problem> {
    let index = if column > 0 {
        usize::try_from(column - 1).ok()
    } else {
        usize::try_from(column.unsigned_abs()).ok().and_then(|from_end| columns.len().checked_sub(from_end))
    };
    let Some(text) = index.and_then(|index| columns.get(index)) else {
        let message = format!("has {} columns, and column {column} is wanted", columns.len());
        return Err(Problem::new(message).hint(format!("`{key}` names another")));
    };
    if text.is_empty() {
        return Err(Problem::new(format!("column {column} is empty")).hint(format!("`{key}` names another")));
    }
    Ok(text)
}
