//! The two streams of a command: results on standard output, notes on standard error.
//!
//! Nothing here panics: a reader that went away ends the program quietly, a full disk behind a redirection is
//! an error.

use std::borrow::Cow;
use std::io;
use std::io::BufWriter;
use std::io::ErrorKind;
use std::io::IsTerminal;
use std::io::Stdout;
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use anyhow::Result;

use crate::error::Class;
use crate::error::Problem;
use crate::error::is_full;
use crate::secrets;
use crate::telemetry::events;
use crate::telemetry::log;

static QUIET: AtomicBool = AtomicBool::new(false);

/// Standard output was closed by its reader, as `head` does. No failure: `main` ends with exit code 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("standard output was closed")]
pub struct ReaderGone;

/// Whether [`note`] is silent, as `-q` asks.
pub fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Whether `-q` was given.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Writes a line to standard error, unless `-q` was given, and to the log file. A standard error that
/// cannot be written to is no reason to stop.
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

/// Notes what could not be read while the rest is shown.
pub fn note_left_out(unread: &[anyhow::Error]) {
    for error in unread {
        note(&printable(&format!("warning: left out: {error:#}")));
    }
}

/// Whether standard output shows colours: a terminal that can, unless `NO_COLOR` is set.
pub fn shows_colors() -> bool {
    let is_set = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !is_set && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Columns of the terminal that standard output is; none where it is no terminal.
pub fn width() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0.into())
}

/// Text from outside that cannot drive a terminal: a line end is `⏎`, other control and direction characters
/// are escaped.
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

/// Buffered lines of results. Dropped without [`Output::finish`], the last of them may be lost.
#[derive(Debug)]
pub struct Output<W: Write = Stdout> {
    writer: BufWriter<W>,
    is_terminal: bool,
}

impl Output<Stdout> {
    /// To standard output.
    pub fn stdout() -> Self {
        Self { is_terminal: io::stdout().is_terminal(), ..Self::to(io::stdout()) }
    }
}

impl<W: Write> Output<W> {
    /// To any writer.
    pub fn to(writer: W) -> Self {
        Self { writer: BufWriter::new(writer), is_terminal: false }
    }

    /// Writes `text` and a line break. [`ReaderGone`] when the reader has gone.
    pub fn line(&mut self, text: &str) -> Result<()> {
        self.write(text.as_bytes())?;
        self.write(b"\n")
    }

    /// Writes bytes as they are; on a terminal without characters that drive one and that JSON does not escape.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let harmless = if self.is_terminal { escape_controls(bytes) } else { Cow::Borrowed(bytes) };
        let bytes = harmless.as_ref();
        self.writer.write_all(bytes).map_err(|e| classified(&e))
    }

    /// Hands everything to the system; only then is a result safe.
    pub fn finish(mut self) -> Result<()> {
        self.writer.flush().map_err(|e| classified(&e))
    }
}

/// Escapes as JSON does what JSON itself leaves as it is: DEL, controls above ASCII, direction marks. ESC stays, with
/// which the program's own colours begin.
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

/// Returns true for a character after which a text is shown in another order than it has.
fn turns_direction(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

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
    fn what_json_leaves_is_escaped_on_a_terminal() {
        let escaped = |text: &str| String::from_utf8(escape_controls(text.as_bytes()).into_owned()).unwrap();
        assert_eq!(escaped("{\"a\":\"\u{9b}31m\u{202e}\u{7f}ä\"}"), r#"{"a":"\u009b31m\u202e\u007fä"}"#);
        assert_eq!(escaped("\u{1b}[31mred"), "\u{1b}[31mred", "colours of our own");
    }

    fn write_to(writer: impl Write) -> Result<()> {
        let mut output = Output::to(writer);
        output.line("a result")?;
        output.finish()
    }

    #[test]
    fn a_reader_that_went_away_is_told_from_a_full_disk() {
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
    fn no_text_drives_the_terminal() {
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
