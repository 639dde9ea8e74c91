//! Kinds of files by their first bytes: compression, archives, encodings of text, and formats that are not
//! text.
//!
//! The name of a file decides only what its bytes leave open. This module reads no file.

use std::path::Path;

use crate::error::Problem;
use crate::fs::{Compression, Unicode};

/// Number of first bytes that identify the kind of a file: the size of a tar header.
pub const SNIFFED_BYTES: usize = 512;

/// The kind of a file, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No known magic number: text, or the format that the file name says.
    Text,
    /// An HTML page or an XML document: text in a corpus, a mistake anywhere else.
    Markup(&'static str),
    /// Compressed in a supported format.
    Compressed(Compression),
    /// Text in UTF-16 or UTF-32 with a byte-order mark.
    Unicode(Unicode),
    /// A tar archive.
    Tar,
    /// A WARC web archive.
    Warc,
    /// Apache Parquet.
    Parquet,
    /// A format that is not supported.
    Foreign(Foreign),
}

/// A format that is not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreign {
    /// Description for messages, such as `a zip archive`.
    pub what: &'static str,
    /// Advice for the user.
    pub hint: &'static str,
}

const UNPACK: &str = "unpack it, and name the files in it";
const DECOMPRESS: &str = "decompress it; .gz, .zst, .bz2 and .xz are read as they are";
const EXPORT: &str = "write its text as .txt, .csv, .jsonl or .parquet";
const FETCH: &str = "the file itself was not fetched: `git lfs pull` does it";

/// Unsupported formats: magic number, description and advice.
const FOREIGN: [(&[u8], &str, &str); 30] = [
    (b"version https://git-lfs.github.com/spec/", "a pointer of git-lfs", FETCH),
    (b"version https://hawser.github.com/spec/", "a pointer of git-lfs", FETCH),
    (
        b"/annex/objects/",
        "a pointer of git-annex",
        "the file itself was not fetched: `git annex get` does it",
    ),
    (b"PK\x03\x04", "a zip archive (.docx, .xlsx, .epub and .npz are some, too)", UNPACK),
    (b"PK\x05\x06", "an empty zip archive", "is this the right file?"),
    (b"PK\x07\x08", "a part of a zip archive", UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", UNPACK),
    (b"Rar!\x1a\x07", "a RAR archive", UNPACK),
    (b"!<arch>\n", "an ar archive", UNPACK),
    (b"\x04\x22\x4d\x18", "compressed by lz4", DECOMPRESS),
    (b"\x1f\x9d", "compressed by compress (.Z)", DECOMPRESS),
    (b"LZIP\x01", "compressed by lzip", DECOMPRESS),
    (b"%PDF-", "a PDF document", EXPORT),
    (b"{\\rtf", "an RTF document", EXPORT),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document (.doc, .xls)", EXPORT),
    (b"SQLite format 3\0", "an SQLite database", EXPORT),
    (b"ARROW1\0\0", "an Arrow file", EXPORT),
    (b"\xff\xff\xff\xff", "an Arrow stream", EXPORT),
    (b"Obj\x01", "an Avro file", EXPORT),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", EXPORT),
    (b"\x93NUMPY", "an array of NumPy", EXPORT),
    (b"\x80\x02", "a pickle of Python", EXPORT),
    (b"\x80\x03", "a pickle of Python", EXPORT),
    (b"\x80\x04", "a pickle of Python", EXPORT),
    (b"\x80\x05", "a pickle of Python", EXPORT),
    (b"\x7fELF", "a program", "is this the right file?"),
    (b"\x89PNG\r\n\x1a\n", "a picture (PNG)", "is this the right file?"),
    (b"\xff\xd8\xff", "a picture (JPEG)", "is this the right file?"),
    (b"GIF89a", "a picture (GIF)", "is this the right file?"),
    (b"GIF87a", "a picture (GIF)", "is this the right file?"),
];

/// UTF-16 and UTF-32 without a byte-order mark: encoding, description and advice. [`Unicode::fits`]
/// recognises them in bytes that contain zeros.
const UNMARKED: [(Unicode, &str, &str); 4] = [
    (
        Unicode::Utf32Le,
        "UTF-32 text without a byte-order mark",
        "convert it with `iconv -f utf-32le -t utf-8`",
    ),
    (
        Unicode::Utf32Be,
        "UTF-32 text without a byte-order mark",
        "convert it with `iconv -f utf-32be -t utf-8`",
    ),
    (
        Unicode::Utf16Le,
        "UTF-16 text without a byte-order mark",
        "convert it with `iconv -f utf-16le -t utf-8`",
    ),
    (
        Unicode::Utf16Be,
        "UTF-16 text without a byte-order mark",
        "convert it with `iconv -f utf-16be -t utf-8`",
    ),
];

impl Kind {
    /// The kind of a file that starts with `head`: its first [`SNIFFED_BYTES`], or all of a shorter file.
    pub fn from_bytes(head: &[u8]) -> Self {
        if let Some(compression) = Compression::from_bytes(head) {
            return Self::Compressed(compression);
        }
        if let Some(unicode) = Unicode::from_mark(head) {
            return Self::Unicode(unicode);
        }
        if is_tar(head) {
            return Self::Tar;
        }
        if head.starts_with(b"WARC/") && head.get(5).is_some_and(u8::is_ascii_digit) {
            return Self::Warc;
        }
        // In a Parquet file, the magic number is followed by the first byte of a header, a control character.
        if head.starts_with(b"PAR1")
            && head.get(4).is_none_or(|byte| *byte < 0x20 && !b"\t\n\r".contains(byte))
        {
            return Self::Parquet;
        }
        if let Some((_, what, hint)) = FOREIGN.into_iter().find(|(magic, ..)| head.starts_with(magic)) {
            return Self::Foreign(Foreign { what, hint });
        }
        if let Some(what) = markup(head) {
            return Self::Markup(what);
        }
        if head.contains(&0)
            && let Some((_, what, hint)) = UNMARKED.into_iter().find(|(unicode, ..)| unicode.fits(head))
        {
            return Self::Foreign(Foreign { what, hint });
        }
        Self::Text
    }

    /// Description of the kind for messages, such as `a tar archive`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Markup(what) => what,
            Self::Compressed(Compression::Gzip) => "compressed by gzip",
            Self::Compressed(Compression::Zstd) => "compressed by zstd",
            Self::Compressed(Compression::Bzip2) => "compressed by bzip2",
            Self::Compressed(_) => "compressed by xz",
            Self::Unicode(_) => "UTF-16 or UTF-32 text",
            Self::Tar => "a tar archive",
            Self::Warc => "a web archive (WARC)",
            Self::Parquet => "a Parquet file",
            Self::Foreign(foreign) => foreign.what,
        }
    }

    /// The error for a file of this kind where `wanted` is expected. It names the kind and no other reason.
    pub fn mistaken(self, path: &Path, wanted: &str) -> Problem {
        let hint = match self {
            Self::Foreign(foreign) => foreign.hint,
            Self::Compressed(_) => "decompress it",
            Self::Markup(_) => "a server may have answered with a page instead of the file: fetch it again",
            Self::Tar => UNPACK,
            _ => "is this the right file?",
        };
        Problem::new(format!("is {}, {wanted} is wanted", self.name())).at(path.display()).hint(hint)
    }
}

/// Returns an error if the first bytes `head` of a file show that it is not `wanted`, a format that is
/// neither compressed nor an archive. HTML pages are refused, too.
pub fn refuse_mistaken(path: &Path, head: &[u8], wanted: &str) -> Result<(), Problem> {
    match Kind::from_bytes(&head[..head.len().min(SNIFFED_BYTES)]) {
        Kind::Text => Ok(()),
        kind => Err(kind.mistaken(path, wanted)),
    }
}

/// Returns true for a tar header. Newer archives have the magic `ustar`; older ones only have a valid
/// checksum.
fn is_tar(head: &[u8]) -> bool {
    if head.get(257..262) == Some(b"ustar") {
        return true;
    }
    let Some(header) = head.first_chunk::<512>() else { return false };
    let digits = header[148..156].trim_ascii_start();
    let end = digits.iter().position(|byte| !(b'0'..=b'7').contains(byte)).unwrap_or(digits.len());
    let stored = digits[..end].iter().fold(0u64, |sum, digit| sum << 3 | u64::from(digit - b'0'));
    let bytes: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
    let own: u64 = header[148..156].iter().map(|byte| u64::from(*byte)).sum();
    end > 0 && header[0] != 0 && stored == bytes - own + 8 * u64::from(b' ')
}

/// Describes `head` if it is the start of an HTML page or an XML document.
fn markup(head: &[u8]) -> Option<&'static str> {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    if starts_with_any_case(text, b"<!doctype html") || starts_with_any_case(text, b"<html") {
        return Some("a page of HTML");
    }
    starts_with_any_case(text, b"<?xml").then_some("an XML document")
}

/// Returns true if `text` starts with `start`, in upper or lower case.
fn starts_with_any_case(text: &[u8], start: &[u8]) -> bool {
    text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_distinguished_from_everything_else() {
        for text in ["", "a", "PAR1 of the book", "version 2", "BZh9 is no archive", "WARC/x", "<p>", "äö\0b"]
        {
            assert_eq!(kind_name(text.as_bytes()), "text", "{text}");
        }
        assert_eq!(kind_name(b"PAR1\x15\x04"), "a Parquet file");
        assert_eq!(kind_name(b"WARC/1.0\r\n"), "a web archive (WARC)");
        assert_eq!(kind_name(b"version https://git-lfs.github.com/spec/v1\noid"), "a pointer of git-lfs");
        assert_eq!(kind_name(b"\n <!DOCTYPE HTML><html>"), "a page of HTML");
        assert_eq!(
            kind_name(b"PK\x03\x04\x14"),
            "a zip archive (.docx, .xlsx, .epub and .npz are some, too)"
        );
        assert_eq!(kind_name(b"\x1f\x8b\x08\0"), "compressed by gzip");
    }

    #[test]
    fn text_of_two_or_four_bytes_a_character_is_recognised_without_a_mark() {
        for text in ["text,label\nOil,b\n", "Съешь ещё этих мягких булок\n", "春眠不覚暁\n処処聞啼鳥\n"]
        {
            assert_eq!(hint(&utf16(text, false)), "iconv -f utf-16le -t utf-8", "{text}");
            assert_eq!(hint(&utf16(text, true)), "iconv -f utf-16be -t utf-8", "{text}");
            assert_eq!(hint(&utf32(text)), "iconv -f utf-32le -t utf-8", "{text}");
        }
        assert_eq!(hint(b"\xff\xfea\0"), "UTF-16 or UTF-32 text");
    }

    #[test]
    fn archives_old_and_new_are_recognised_by_magic_or_checksum() {
        let mut header = [0u8; 512];
        header[..5].copy_from_slice(b"a.txt");
        header[100..108].copy_from_slice(b"0000644\0");
        header[124..136].copy_from_slice(b"00000000003\0");
        assert_eq!(Kind::from_bytes(&header), Kind::Text);
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum::<u32>() + 8 * 32;
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        assert_eq!(Kind::from_bytes(&header), Kind::Tar);
        header[257..262].copy_from_slice(b"ustar");
        assert_eq!(Kind::from_bytes(&header[..300]), Kind::Tar);
        assert_eq!(Kind::from_bytes(&header[..200]), Kind::Text);
    }

    fn kind_name(head: &[u8]) -> &'static str {
        Kind::from_bytes(head).name()
    }

    /// The encoding conversion that the hint suggests, or the name of a supported kind.
    fn hint(head: &[u8]) -> &'static str {
        match Kind::from_bytes(head) {
            Kind::Foreign(foreign) => foreign.hint.split('`').nth(1).unwrap_or_default(),
            other => other.name(),
        }
    }

    fn utf16(text: &str, big: bool) -> Vec<u8> {
        text.encode_utf16()
            .flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() })
            .collect()
    }

    fn utf32(text: &str) -> Vec<u8> {
        text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect()
    }
}
