//! The output of commands: results on standard output, notes on standard error.
//!
//! Nothing here panics. If the reader of standard output goes away, the program ends quietly; a full disk is
//! an error.

use std::borrow::Cow;
use std::io;
use std::io::{BufWriter, ErrorKind, IsTerminal, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

use crate::error::{Class, Problem, is_full};
use crate::secrets;
use crate::telemetry::{events, log};

static QUIET: AtomicBool = AtomicBool::new(false);

/// Standard output was closed by its reader, for example `head`. This is no failure: `main` ends with exit
/// code 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("standard output was closed")]
pub struct ReaderGone;

/// Turns the notes on standard error off or on, as `-q` asks.
pub fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// True if notes are off (`-q`).
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Writes a line to standard error, unless notes are off, and to the log file. Errors of standard error are
/// ignored.
pub fn note(text: &str) {
    if let Some(warning) = log::add(text) {
        let _ = writeln!(io::stderr().lock(), "{warning}");
    }
    if events::are_on() {
        events::send_text("note", text);
    } else if !is_quiet() {
        let _ = writeln!(io::stderr().lock(), "{}", secrets::masked(text));
    }
}

/// Warns of each item that could not be read and is left out of the output.
pub fn note_left_out(unread: &[anyhow::Error]) {
    for error in unread {
        note(&printable(&format!("warning: left out: {error:#}")));
    }
}

/// True if standard output is a terminal that shows colours, and `NO_COLOR` is not set.
pub fn shows_colors() -> bool {
    let is_set = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !is_set && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Width of the terminal in columns; `None` if standard output is not a terminal.
pub fn width() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0.into())
}

/// Escapes text from outside, so that it cannot control a terminal: a line end becomes `⏎`, other control
/// characters and direction marks become escapes.
pub fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => safe.push('⏎'),
            _ if character.is_control() || turns_direction(character) => {
                safe.extend(character.escape_default());
            }
            _ => safe.push(character),
        }
    }
    safe
}

/// Writes one line to standard output and flushes it. For many lines, [`Output`] is faster.
pub fn stdout_line(text: &str) -> Result<()> {
    let mut output = Output::stdout();
    output.line(&secrets::masked(text))?;
    output.finish()
}

/// A buffered writer of result lines. If it is dropped without [`Output::finish`], the last lines may be
/// lost.
#[derive(Debug)]
pub struct Output<W: Write = Stdout> {
    writer: BufWriter<W>,
    is_terminal: bool,
}

impl Output<Stdout> {
    /// Returns a writer to standard output.
    pub fn stdout() -> Self {
        Self { is_terminal: io::stdout().is_terminal(), ..Self::to(io::stdout()) }
    }
}

impl<W: Write> Output<W> {
    /// Returns an output that writes to `writer`.
    pub fn to(writer: W) -> Self {
        Self { writer: BufWriter::new(writer), is_terminal: false }
    }

    /// Writes `text` and a line break. The error is [`ReaderGone`] if the reader has closed the pipe.
    pub fn line(&mut self, text: &str) -> Result<()> {
        self.write(text.as_bytes())?;
        self.write(b"\n")
    }

    /// Writes bytes as they are. On a terminal, control characters that JSON does not escape are escaped.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let harmless = if self.is_terminal { escape_controls(bytes) } else { Cow::Borrowed(bytes) };
        let bytes = harmless.as_ref();
        self.writer.write_all(bytes).map_err(|e| classified(&e))
    }

    /// Flushes the buffer to the operating system. Only then are all lines written.
    pub fn finish(mut self) -> Result<()> {
        self.writer.flush().map_err(|e| classified(&e))
    }
}

/// Escapes the control characters that JSON does not escape (DEL, controls above ASCII, direction marks) in
/// the way of JSON. ESC is kept: the program's own colours begin with it.
fn escape_controls(bytes: &[u8]) -> Cow<'_, [u8]> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Cow::Borrowed(bytes) };
    if !text.contains(drives_terminal) {
        return Cow::Borrowed(bytes);
    }
    let escaped = text.chars().map(|character| match character {
        _ if drives_terminal(character) => format!("\\u{:04x}", u32::from(character)),
        _ => character.to_string(),
    });
    Cow::Owned(escaped.collect::<String>().into_bytes())
}

fn drives_terminal(character: char) -> bool {
    matches!(character, '\u{7f}'..='\u{9f}') || turns_direction(character)
}

/// True for a character that makes terminals show the following text in another order.
fn turns_direction(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Turns a write error into [`ReaderGone`] or an error of class [`Class::Disk`].
fn classified(error: &io::Error) -> anyhow::Error {
    if error.kind() == ErrorKind::BrokenPipe {
        return ReaderGone.into();
    }
    let hint = if is_full(error) {
        "free some room where standard output goes, and run the command again"
    } else {
        "see to what standard output is written to, and run the command again"
    };
    let problem = Problem::new(format!("cannot write: {error}")).at("standard output");
    problem.class(Class::Disk).hint(hint).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error;

    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn control_characters_that_json_keeps_are_escaped_on_a_terminal() {
        for (text, escaped) in [
            ("{\"a\":\"\u{9b}31m\u{202e}\u{7f}ä\"}", r#"{"a":"\u009b31m\u202e\u007fä"}"#),
            // The program's own colours are kept.
            ("\u{1b}[31mred", "\u{1b}[31mred"),
        ] {
            assert_eq!(std::str::from_utf8(&escape_controls(text.as_bytes())), Ok(escaped));
        }
    }

    fn write_to(writer: impl Write) -> Result<()> {
        let mut output = Output::to(writer);
        output.line("a result")?;
        output.finish()
    }

    #[test]
    fn a_closed_reader_is_another_error_than_a_full_disk() {
        let gone = write_to(Failing(ErrorKind::BrokenPipe)).expect_err("is wrong");
        assert_eq!(gone.downcast_ref(), Some(&ReaderGone));
        let full = write_to(Failing(ErrorKind::StorageFull)).expect_err("is wrong");
        assert_eq!(error::class_of(&full), Class::Disk);
        insta::assert_snapshot!(full, @"
        standard output: cannot write: no storage space
          hint: free some room where standard output goes, and run the command again
        ");
    }

    #[test]
    fn control_characters_are_escaped() {
        let hostile = "\u{1b}[2Jä\r\u{7}\u{9b}31m\u{202e}txt\u{2066}\n\t.";
        assert_eq!(printable(hostile), r"\u{1b}[2Jä\r\u{7}\u{9b}31m\u{202e}txt\u{2066}⏎\t.");
    }

    #[test]
    fn lines_arrive_whole() {
        let mut bytes = Vec::new();
        write_to(&mut bytes).expect("memory takes all");
        assert_eq!(bytes, b"a result\n");
    }
}
