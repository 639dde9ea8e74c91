//! The error type of the whole program: what went wrong, where, what to do about it, and which exit code
//! follows.
//!
//! This module prints nothing: `main` prints the error once, with [`render`].

use std::fmt::Write;
use std::io::ErrorKind;
use std::{fmt, io};

use crate::secrets;

/// Class of an error, which determines the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Class {
    /// Anything without a class of its own: exit code 1.
    #[default]
    Failed,
    /// Wrong command line or configuration, or a model that is not supported: exit code 2.
    Usage,
    /// The disk is full or failing: exit code 74.
    Disk,
    /// Another process died or hangs; the same command, run again, continues: exit code 75.
    Restart,
    /// Training diverged (non-finite loss): exit code 76.
    Diverged,
    /// Stopped by a signal after a checkpoint was written: exit code 128 + signal number.
    Interrupted(u8),
}

impl Class {
    /// The process exit code of this class.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Disk => 74,
            Self::Restart => 75,
            Self::Diverged => 76,
            Self::Interrupted(signal) => 128 + signal,
        }
    }
}

/// One problem, displayed as `place: message` with an indented `hint:` line.
///
/// `place` is a file with line and column, a config key, or a tensor name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Class of the failure.
    pub class: Class,
    /// Place of the problem: `configs/a.yaml:14:3`, `data/wiki.jsonl:1042`, `training.warmup_steps`.
    pub place: Option<String>,
    /// Message in lower case, without final period, with literals in backticks.
    pub message: String,
    /// Advice for the user.
    pub hint: Option<String>,
}

impl Problem {
    /// A problem of class [`Class::Failed`] without place or hint.
    pub fn new(message: impl Into<String>) -> Self {
        Self { class: Class::Failed, place: None, message: message.into(), hint: None }
    }

    /// A problem of class [`Class::Usage`]: the command line or the configuration is wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { class: Class::Usage, ..Self::new(message) }
    }

    /// Sets the place.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.place = Some(place.to_string());
        self
    }

    /// Sets the hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the class.
    #[must_use]
    pub fn class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        write!(f, "{}", self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

/// Several problems found in one pass, such as all mistakes in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                write!(f, "\nerror: ")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// The text of an error and its chain of causes, as the terminal shows it, ending in a newline.
pub fn render(error: &anyhow::Error) -> String {
    // The user asked the program to stop: nothing went wrong.
    let what = if matches!(class_of(error), Class::Interrupted(_)) { "note" } else { "error" };
    let mut text = format!("{what}: {error}\n");
    for cause in error.chain().skip(1) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  because: {}", cause.to_string().replace('\n', "\n  "));
    }
    if class_of(error) == Class::Disk && !text.contains("hint:") {
        let hint = if is_of_full_disk(error) {
            "free some room"
        } else {
            "see to the disk, which fails (`dmesg` says more)"
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  hint: {hint}, and run the same command again: preparing and training continue where they stopped"
        );
    }
    told(&text)
}

/// Removes secrets and passwords from a text about an error.
pub fn told(text: &str) -> String {
    without_passwords(&secrets::masked(text))
}

/// Removes user and password (the part before `@`) from URLs, because errors are copied into reports and
/// chats.
fn without_passwords(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        safe.push_str(before);
        let end = after.find(|c: char| c == '/' || c.is_whitespace()).unwrap_or(after.len());
        let secret = after[..end].rfind('@');
        safe.push_str(if secret.is_some() { "***" } else { "" });
        rest = &after[secret.unwrap_or(0)..];
    }
    safe + rest
}

/// Returns true if an error was caused by a full disk.
pub fn is_of_full_disk(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref()).any(is_full)
}

/// Returns true if space ran out: on the disk, in the user's quota, or in the permitted size of a file
/// (`ulimit -f`).
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

/// Returns true if the disk caused the error. EIO is compared by number, since the standard library has no
/// kind for it.
fn is_of_disk(error: &io::Error) -> bool {
    is_full(error) || error.kind() == ErrorKind::ReadOnlyFilesystem || error.raw_os_error() == Some(libc::EIO)
}

/// The class of the first cause in the chain that has a class; [`Class::Failed`] if none has one.
pub fn class_of(error: &anyhow::Error) -> Class {
    for cause in error.chain() {
        if let Some(problem) = cause.downcast_ref::<Problem>() {
            return problem.class;
        }
        if cause.downcast_ref::<Problems>().is_some() {
            return Class::Usage;
        }
        if cause.downcast_ref::<io::Error>().is_some_and(is_of_disk) {
            return Class::Disk;
        }
    }
    Class::Failed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_is_a_note_and_keeps_its_exit_code() {
        let interrupted = stopped(Class::Interrupted(2));
        assert_eq!(render(&interrupted), "note: stopped; step 3 is saved\n  hint: go on\n");
        assert_eq!(class_of(&interrupted).exit_code(), 130);
        assert!(render(&stopped(Class::Failed)).starts_with("error: "));
    }

    #[test]
    fn a_failing_disk_is_distinguished_from_a_full_one() {
        for (number, hint) in [
            (libc::EIO, "hint: see to the disk"),
            (libc::EROFS, "hint: see to the disk"),
            (libc::ENOSPC, "hint: free some room"),
            (libc::EDQUOT, "hint: free some room"),
            (libc::EFBIG, "hint: free some room"),
        ] {
            let (code, text) = exit_code_and_text(number);
            assert!(code == 74 && text.contains(hint), "{code}: {text}");
        }
        assert_eq!(exit_code_and_text(libc::ENOENT).0, 1);
    }

    fn exit_code_and_text(error_number: i32) -> (u8, String) {
        let error =
            anyhow::Error::from(io::Error::from_raw_os_error(error_number)).context("cannot read `a`");
        (class_of(&error).exit_code(), render(&error))
    }

    fn stopped(class: Class) -> anyhow::Error {
        Problem::new("stopped; step 3 is saved").class(class).hint("go on").into()
    }

    #[test]
    fn a_password_in_a_url_is_not_repeated() {
        for (place, shown) in [
            ("s3://me:secret@host/a@b", "error: s3://***@host/a@b: no such file\n"),
            ("https://host/x, http://u@h", "error: https://host/x, http://***@h: no such file\n"),
        ] {
            assert_eq!(render(&Problem::new("no such file").at(place).into()), shown);
        }
    }
}
