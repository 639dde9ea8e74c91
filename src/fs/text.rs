//! Opens text that may be compressed: `.gz`, `.zst` and `.bz2` are told by the last extension.
//!
//! It limits what a hostile archive may ask for; it knows nothing of lines or characters.

use std::fs::File;
use std::io::BufReader;
use std::io::Read;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use anyhow::Context;
use anyhow::Result;

/// The largest zstd window that is accepted, as a power of two: 128 MiB, what the `zstd` program itself accepts.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

const BUFFER_BYTES: usize = 128 << 10;

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, also several members one after the other.
    Gzip,
    /// Zstandard, also several frames.
    Zstd,
    /// bzip2, also several streams.
    Bzip2,
}

impl Compression {
    /// Told by the last extension of `path`, whatever its case.
    pub fn of(path: &Path) -> Self {
        match path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("gz") => Self::Gzip,
            Some("zst") => Self::Zstd,
            Some("bz2") => Self::Bzip2,
            _ => Self::None,
        }
    }
}

/// `path` without the extension of its compression: `a/b.jsonl.gz` gives `a/b.jsonl`.
pub fn without_compression(path: &Path) -> PathBuf {
    match Compression::of(path) {
        Compression::None => path.to_path_buf(),
        _ => path.with_extension(""),
    }
}

/// The decompressed bytes of a file.
pub struct TextFile {
    reader: Box<dyn Read + Send>,
    position: Arc<AtomicU64>,
}

impl TextFile {
    /// Bytes of the file itself (as it lies on the disk) read so far.
    pub fn position_bytes(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }
}

impl Read for TextFile {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.reader.read(buffer)
    }
}

/// Opens a plain or compressed file for reading its decompressed bytes.
pub fn open_text(path: &Path) -> Result<TextFile> {
    let position = Arc::new(AtomicU64::new(0));
    let file = BufReader::with_capacity(BUFFER_BYTES, Counted { file: super::open(path)?, position: Arc::clone(&position) });
    let reader: Box<dyn Read + Send> = match Compression::of(path) {
        Compression::None => Box::new(file),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        Compression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(file)),
        Compression::Zstd => {
            let mut decoder =
                zstd::stream::read::Decoder::with_buffer(file).with_context(|| format!("cannot read `{}`", path.display()))?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).with_context(|| format!("cannot read `{}`", path.display()))?;
            Box::new(decoder)
        }
    };
    Ok(TextFile { reader, position })
}

struct Counted {
    file: File,
    position: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.position.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
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
        let gzip = |text: &str| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(text.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        let bzip2 = |text: &str| {
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            encoder.write_all(text.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        let zstd = |text: &str| zstd::encode_all(text.as_bytes(), 3).unwrap();
        for (name, first, second) in [
            ("a.txt", b"one ".to_vec(), b"two".to_vec()),
            ("a.txt.gz", gzip("one "), gzip("two")),
            ("a.txt.bz2", bzip2("one "), bzip2("two")),
            ("a.txt.ZST", zstd("one "), zstd("two")),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, [first, second].concat()).unwrap();
            assert_eq!(read(&path), "one two", "{name}");
        }
    }

    #[test]
    fn the_extension_below_the_compression_is_found() {
        assert_eq!(without_compression(Path::new("a/b.jsonl.gz")), Path::new("a/b.jsonl"));
        assert_eq!(without_compression(Path::new("a/b.jsonl")), Path::new("a/b.jsonl"));
    }
}
