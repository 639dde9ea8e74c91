//! White space as a reader sees it: words one space apart, paragraphs one blank line apart.

use std::borrow::Cow;

use crate::corpus::clean::controls;

/// One space for a run of blanks, none at the ends of lines, `\n` for every kind of line end, at most one
/// blank line, none at the ends of the text.
pub(in crate::corpus) fn tidy(text: &str) -> Cow<'_, str> {
    if is_tidy(text.as_bytes()) {
        return Cow::Borrowed(text);
    }
    let mut tidied = String::with_capacity(text.len());
    let (mut line_ends, mut blank, mut after_return) = (0, false, false);
    for c in text.chars() {
        if is_line_end(c) {
            // Carriage return and line feed are one line end.
            line_ends += usize::from(!(c == '\n' && after_return));
        } else if is_blank(c) {
            blank = true;
        } else {
            if !tidied.is_empty() {
                match line_ends {
                    0 if blank => tidied.push(' '),
                    0 => {}
                    1 => tidied.push('\n'),
                    _ => tidied.push_str("\n\n"),
                }
            }
            (line_ends, blank) = (0, false);
            tidied.push(c);
        }
        after_return = c == '\r';
    }
    Cow::Owned(tidied)
}

/// Whether a line has nothing but blanks and what cleaning takes out. A line that shows something is looked at
/// no further than its first character that does.
pub(in crate::corpus) fn shows_nothing(mut line: &[u8]) -> bool {
    loop {
        line = line.trim_ascii_start();
        let Some(first) = line.first() else { return true };
        if first.is_ascii_graphic() {
            return false;
        }
        let character = line[..line.len().min(4)].utf8_chunks().next().and_then(|c| c.valid().chars().next());
        match character {
            Some(c) if is_blank(c) || is_line_end(c) || controls::goes(c) => line = &line[c.len_utf8()..],
            _ => return false,
        }
    }
}

fn is_blank(c: char) -> bool {
    matches!(
        c,
        ' ' | '\t' | '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}'
    )
}

fn is_line_end(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Whether `tidy` would change nothing, told from the bytes.
fn is_tidy(bytes: &[u8]) -> bool {
    // The text stands between two imagined pairs of line ends, where neither a blank nor a line end may
    // follow.
    let (mut before_last, mut last) = (b'\n', b'\n');
    for (at, &byte) in bytes.iter().enumerate() {
        let next = |ahead: usize| bytes.get(at + ahead).copied().unwrap_or_default();
        let is_fine = match byte {
            b' ' => last != b' ' && last != b'\n',
            b'\n' => last != b' ' && !(last == b'\n' && before_last == b'\n'),
            b'\t' | b'\r' | 0x0b | 0x0c => false,
            0xc2 => !matches!(next(1), 0xa0 | 0x85),
            0xe1 => (next(1), next(2)) != (0x9a, 0x80),
            0xe2 => match next(1) {
                0x80 => !matches!(next(2), 0x80..=0x8a | 0xa8 | 0xa9 | 0xaf),
                0x81 => next(2) != 0x9f,
                _ => true,
            },
            0xe3 => (next(1), next(2)) != (0x80, 0x80),
            _ => true,
        };
        if !is_fine {
            return false;
        }
        (before_last, last) = (last, byte);
    }
    bytes.is_empty() || !matches!(last, b' ' | b'\n')
}
