//! Opens text that may be compressed, archived or in another encoding. The first bytes decide, not the file
//! name.
//!
//! A hostile file gets at most one decompression window, because no file is decompressed twice. The callers
//! take apart members of archives, lines and characters.

use std::io::{BufReader, Chain, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use crate::error::Problem;
use crate::fs::as_utf8::AsUtf8;
use crate::fs::compression::decompressed;
use crate::fs::progress::{Counted, Progress};
use crate::fs::unicode::UnicodeConverter;
use crate::fs::{Compression, Kind, SNIFFED_BYTES, TextEncoding};

/// True once standard input was opened: a process can read it only once.
static STANDARD_INPUT_TAKEN: AtomicBool = AtomicBool::new(false);

const BUFFER_BYTES: usize = 128 << 10;

/// The decompressed bytes of a file or of standard input.
pub struct TextFile {
    reader: Box<dyn Read + Send>,
    progress: Arc<Progress>,
    is_compressed: bool,
}

impl TextFile {
    /// A part of `whole`, such as a member of an archive, whose bytes come from `reader`. It shares the
    /// progress of `whole`.
    pub fn of_part(whole: &Self, reader: Box<dyn Read + Send>) -> Self {
        Self { reader, progress: Arc::clone(&whole.progress), is_compressed: whole.is_compressed }
    }

    /// Number of bytes of the file read so far, counted as they are on disk, before decompression.
    pub fn position_bytes(&self) -> u64 {
        self.progress.bytes()
    }

    /// Reading progress of the file, which can be queried even after this value is dropped.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Returns the file, and true if its first byte after a byte-order mark and white space is `byte`. Only
    /// the bytes of one read are examined.
    pub fn begins_with(mut self, byte: u8, path: &Path) -> Result<(Self, bool)> {
        let head = read_head(&mut self.reader, true).with_context(|| cannot_read(path))?;
        let begins =
            head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&head).trim_ascii_start().first() == Some(&byte);
        self.reader = Box::new(Cursor::new(head).chain(self.reader));
        Ok((self, begins))
    }

    /// Returns the file, decompressed and converted to UTF-8, and the kind of its content; no byte is
    /// consumed. Text is in the encoding of its byte-order mark, else in `encoding`, else in UTF-8. Content in
    /// an unsupported format is an error that names the format, and so is content compressed twice.
    pub fn sniffed(mut self, path: &Path, encoding: Option<TextEncoding>) -> Result<(Self, Kind)> {
        let head = read_head(&mut self.reader, false).with_context(|| cannot_read(path))?;
        let kind = Kind::from_bytes(&head);
        let reader = Cursor::new(head).chain(self.reader);
        let is_compressed = self.is_compressed;
        let progress = self.progress;
        match kind {
            Kind::Foreign(_) => Err(kind.mistaken(path, "text").into()),
            Kind::Compressed(_) if is_compressed => {
                let message = format!("is {} inside of another compression", kind.name());
                Err(Problem::new(message).at(path.display()).hint("decompress it once").into())
            }
            Kind::Compressed(compression) => {
                let buffered = BufReader::with_capacity(BUFFER_BYTES, reader);
                let inside = decompressed(compression, buffered).with_context(|| cannot_read(path))?;
                Self { reader: inside, progress, is_compressed: true }.sniffed(path, encoding)
            }
            Kind::Unicode(unicode) => {
                let reader = Box::new(AsUtf8::new(reader, UnicodeConverter::new(unicode)));
                Ok((Self { reader, progress, is_compressed }, Kind::Text))
            }
            Kind::Text | Kind::Markup(_) => {
                Ok((Self { reader: as_utf8(reader, encoding), progress, is_compressed }, kind))
            }
            Kind::Tar | Kind::Warc | Kind::Parquet => {
                Ok((Self { reader: Box::new(reader), progress, is_compressed }, kind))
            }
        }
    }
}

impl Read for TextFile {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.reader.read(buffer)
    }
}

/// Opens a file and returns its content with its kind, as [`TextFile::sniffed`] does.
pub fn open_content(path: &Path, encoding: Option<TextEncoding>) -> Result<(TextFile, Kind)> {
    let (text, head) = opened(super::open_stream(path)?, path, false)?;
    check_name(path, &head)?;
    text.sniffed(path, encoding)
}

/// Opens standard input like [`open_content`]; a second call is an error. With `is_live`, plain text is
/// returned after a single read, without waiting for more input.
pub fn standard_input(is_live: bool, encoding: Option<TextEncoding>) -> Result<(TextFile, Kind)> {
    if STANDARD_INPUT_TAKEN.swap(true, Ordering::Relaxed) {
        return Err(Problem::usage("standard input can be read only once")
            .hint("write it to a file, and name the file")
            .into());
    }
    let path = Path::new("standard input");
    let (text, head) = opened(std::io::stdin(), path, is_live)?;
    let kind = Kind::from_bytes(&head);
    if is_live && kind == Kind::Text {
        return Ok((TextFile { reader: as_utf8(text.reader, encoding), ..text }, kind));
    }
    text.sniffed(path, encoding)
}

/// Opens plain or compressed text as UTF-8. Content of any other kind is an error that names the kind.
pub fn open_text(path: &Path) -> Result<TextFile> {
    match open_content(path, None)? {
        (text, Kind::Text | Kind::Markup(_)) => Ok(text),
        (_, kind) => Err(kind.mistaken(path, "text").into()),
    }
}

/// Opens a plain or compressed file that this program wrote, whatever its content.
pub fn open_decompressed(path: &Path) -> Result<TextFile> {
    let (text, head) = opened(super::open_stream(path)?, path, false)?;
    check_name(path, &head)?;
    let TextFile { reader, progress, .. } = text;
    let Kind::Compressed(compression) = Kind::from_bytes(&head) else {
        return Ok(TextFile { reader, progress, is_compressed: false });
    };
    let buffered = BufReader::with_capacity(BUFFER_BYTES, reader);
    let reader = decompressed(compression, buffered).with_context(|| cannot_read(path))?;
    Ok(TextFile { reader, progress, is_compressed: true })
}

/// The kind of a file by its bytes on disk, before decompression. A pipe counts as text, because its bytes
/// can be read only once.
pub fn kind_of_file(path: &Path) -> Result<Kind> {
    let file = super::open_stream(path)?;
    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
    if !is_file {
        return Ok(Kind::Text);
    }
    let head = read_head(&mut &file, false).with_context(|| cannot_read(path))?;
    check_name(path, &head)?;
    Ok(Kind::from_bytes(&head))
}

/// Converts text from `encoding` if one is given.
fn as_utf8(reader: impl Read + Send + 'static, encoding: Option<TextEncoding>) -> Box<dyn Read + Send> {
    match encoding {
        Some(encoding) => Box::new(AsUtf8::new(reader, encoding.converter())),
        None => Box::new(reader),
    }
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read `{}`", path.display())
}

/// Returns `source` as a [`TextFile`], and its first bytes, which the file still yields.
fn opened(source: impl Read + Send + 'static, path: &Path, is_live: bool) -> Result<(TextFile, Vec<u8>)> {
    let progress = Arc::new(Progress::default());
    let mut source = Counted::new(source, Arc::clone(&progress));
    let head = read_head(&mut source, is_live).with_context(|| cannot_read(path))?;
    let reader: BufReader<Chain<_, _>> =
        BufReader::with_capacity(BUFFER_BYTES, Cursor::new(head.clone()).chain(source));
    Ok((TextFile { reader: Box::new(reader), progress, is_compressed: false }, head))
}

/// The first [`SNIFFED_BYTES`] bytes of a source; fewer if the source ends earlier, or if `is_live` and the
/// first read returns fewer.
fn read_head(source: &mut impl Read, is_live: bool) -> std::io::Result<Vec<u8>> {
    let mut head = vec![0; SNIFFED_BYTES];
    let mut length = 0;
    while length < head.len() {
        match source.read(&mut head[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        if is_live {
            break;
        }
    }
    head.truncate(length);
    Ok(head)
}

/// Returns an error if the name of a file promises compression but its first bytes are neither text nor a
/// known format. Plain text under such a name is accepted, because browsers decompress downloads.
fn check_name(path: &Path, head: &[u8]) -> Result<()> {
    if Compression::from_path(path) == Compression::None
        || Kind::from_bytes(head) != Kind::Text
        || is_text(head)
    {
        return Ok(());
    }
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    let message =
        format!("is neither text nor what `.{extension}` says: its first bytes are those of nothing known");
    Err(Problem::new(message).at(path.display()).hint("is the file whole, and is its name right?").into())
}

/// Returns true if `head` is UTF-8 (a character may be cut at its end) without a zero byte.
fn is_text(head: &[u8]) -> bool {
    match std::str::from_utf8(head) {
        Ok(text) => !text.contains('\0'),
        Err(e) => e.error_len().is_none() && !head.contains(&0),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(path: &Path) -> String {
        let mut text = String::new();
        open_text(path).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn members_and_frames_that_follow_each_other_are_read_to_the_end() {
        let folder = tempfile::tempdir().unwrap();
        for (name, first, second) in [
            ("a.txt", b"one ".to_vec(), b"two".to_vec()),
            ("a.txt.gz", gzip("one "), gzip("two")),
            ("a.txt.bz2", bzip2("one "), bzip2("two")),
            ("a.txt.ZST", zstd("one "), zstd("two")),
            ("a.txt.xz", xz("one "), xz("two")),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, [first, second].concat()).unwrap();
            assert_eq!(read(&path), "one two", "{name}");
        }
    }

    #[test]
    fn a_device_that_never_ends_is_refused() {
        if Path::new("/dev/zero").exists() {
            assert_eq!(error_of("/dev/zero").unwrap(), "/dev/zero: is a device, a file is wanted");
            assert_eq!(error_of("/dev/null"), None);
        }
    }

    #[test]
    fn windows_of_128_mib_are_read_and_larger_ones_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt.zst");
        std::fs::write(&path, zstd_frame(27)).unwrap();
        assert_eq!(read(&path), "long ago");
        std::fs::write(&path, zstd_frame(28)).unwrap();
        let message = format!("{:#}", open_text(&path).err().unwrap());
        assert!(message.contains("needs more than 128 MiB"), "{message}");
    }

    #[test]
    fn an_xz_file_that_needs_too_much_memory_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut options = liblzma::stream::LzmaOptions::new_preset(0).unwrap();
        options.dict_size(256 << 20);
        let mut filters = liblzma::stream::Filters::new();
        filters.lzma2(&options);
        let stream =
            liblzma::stream::Stream::new_stream_encoder(&filters, liblzma::stream::Check::Crc32).unwrap();
        let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
        encoder.write_all(b"long ago").unwrap();
        let path = folder.path().join("a.txt.xz");
        std::fs::write(&path, encoder.finish().unwrap()).unwrap();
        let message = format!("{:#}", open_text(&path).err().unwrap());
        assert!(message.contains("needs more than 128 MiB"), "{message}");
    }

    fn error_of(path: &str) -> Option<String> {
        open_text(Path::new(path)).err().map(|e| e.to_string())
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn bzip2(text: &str) -> Vec<u8> {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(text: &str) -> Vec<u8> {
        zstd::encode_all(text.as_bytes(), 3).unwrap()
    }

    fn xz(text: &str) -> Vec<u8> {
        liblzma::encode_all(text.as_bytes(), 6).unwrap()
    }

    /// A frame that declares a window of `2^window_log` bytes.
    fn zstd_frame(window_log: u32) -> Vec<u8> {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        encoder.long_distance_matching(true).unwrap();
        encoder.window_log(window_log).unwrap();
        encoder.write_all(b"long ago").unwrap();
        encoder.finish().unwrap()
    }
}
