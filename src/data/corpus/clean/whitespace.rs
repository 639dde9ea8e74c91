//! Normalizes white space: one space between words, one blank line between paragraphs.

use std::borrow::Cow;

use crate::corpus::clean::controls;

/// Replaces each sequence of blanks by one space and each kind of line end by `\n`; removes blanks at the
/// ends of lines, all but one of consecutive blank lines, and blank lines at the ends of the text.
pub(in crate::corpus) fn tidy(text: &str) -> Cow<'_, str> {
    if is_tidy(text.as_bytes()) {
        return Cow::Borrowed(text);
    }
    let mut tidied = String::with_capacity(text.len());
    let mut line_ends = 0;
    let mut blank = false;
    let mut after_return = false;
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

/// True if a line has only blanks and characters that cleaning removes. Stops at the first visible character.
pub(in crate::corpus) fn shows_nothing(mut line: &[u8]) -> bool {
    loop {
        line = line.trim_ascii_start();
        let Some(first) = line.first() else { return true };
        if first.is_ascii_graphic() {
            return false;
        }
        let character = line[..line.len().min(4)].utf8_chunks().next().and_then(|c| c.valid().chars().next());
        match character {
            Some(c) if is_blank(c) || is_line_end(c) || controls::is_removed(c) => {
                line = &line[c.len_utf8()..];
            }
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

/// True if `tidy` would change nothing; checks bytes, without decoding characters.
fn is_tidy(bytes: &[u8]) -> bool {
    // The start of the text counts as the place after two line ends, where neither a blank nor a line end may
    // follow.
    let mut before_last = b'\n';
    let mut last = b'\n';
    for (at, &byte) in bytes.iter().enumerate() {
        let is_fine = match byte {
            b' ' => last != b' ' && last != b'\n',
            b'\n' => last != b' ' && !(last == b'\n' && before_last == b'\n'),
            b'\t' | b'\r' | 0x0b | 0x0c => false,
            0xc2 => !matches!(byte_at(bytes, at + 1), 0xa0 | 0x85),
            0xe1 => (byte_at(bytes, at + 1), byte_at(bytes, at + 2)) != (0x9a, 0x80),
            0xe2 => match byte_at(bytes, at + 1) {
                0x80 => !matches!(byte_at(bytes, at + 2), 0x80..=0x8a | 0xa8 | 0xa9 | 0xaf),
                0x81 => byte_at(bytes, at + 2) != 0x9f,
                _ => true,
            },
            0xe3 => (byte_at(bytes, at + 1), byte_at(bytes, at + 2)) != (0x80, 0x80),
            _ => true,
        };
        if !is_fine {
            return false;
        }
        (before_last, last) = (last, byte);
    }
    bytes.is_empty() || !matches!(last, b' ' | b'\n')
}

#[inline]
fn byte_at(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or_default()
}
