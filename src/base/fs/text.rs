//! Opens text that may be compressed: `.gz`, `.zst`, `.bz2` and `.xz` are told by the last extension.
//!
//! It limits what a hostile archive may ask for; it knows nothing of lines or characters.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use anyhow::Context;
use anyhow::Result;

use crate::error::Problem;

/// The largest zstd window that is accepted, as a power of two: 128 MiB.
///
/// It is what `zstd -d` accepts without further options and what `zstd --long` writes, so large corpora use
/// it; a smaller cap would refuse them. A frame that claims it and holds little touches little of it, and no
/// file can make a reader hold more than one window: half of the 256 MiB that a hostile file may cost.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// The most memory that an xz decoder may take, in bytes: the same 128 MiB (`xz -9` writes files that need
/// 65).
const XZ_MEMORY_BYTES_MAX: u64 = 128 << 20;

/// The input of a process can be read only once.
static STANDARD_INPUT_TAKEN: AtomicBool = AtomicBool::new(false);

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
    /// xz, also several streams.
    Xz,
}

impl Compression {
    /// Told by the last extension of `path`, whatever its case.
    pub fn of(path: &Path) -> Self {
        match path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("gz") => Self::Gzip,
            Some("zst") => Self::Zstd,
            Some("bz2") => Self::Bzip2,
            Some("xz") => Self::Xz,
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

/// The decompressed bytes of a file or of standard input.
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
    let cannot_read = || format!("cannot read `{}`", path.display());
    let (file, position) = counted(super::open_stream(path)?);
    let reader: Box<dyn Read + Send> = match Compression::of(path) {
        Compression::None => Box::new(file),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        Compression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(file)),
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(file).with_context(cannot_read)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).with_context(cannot_read)?;
            Box::new(Explained(decoder))
        }
        Compression::Xz => {
            let stream = liblzma::stream::Stream::new_stream_decoder(
                XZ_MEMORY_BYTES_MAX,
                liblzma::stream::CONCATENATED,
            );
            let stream = stream.map_err(std::io::Error::from).with_context(cannot_read)?;
            Box::new(Explained(liblzma::bufread::XzDecoder::new_stream(file, stream)))
        }
    };
    Ok(TextFile { reader, position })
}

/// Opens standard input, which is not decompressed; the second time is an error.
pub fn standard_input() -> Result<TextFile> {
    if STANDARD_INPUT_TAKEN.swap(true, Ordering::Relaxed) {
        return Err(Problem::usage("standard input can be read only once")
            .hint("write it to a file, and name the file")
            .into());
    }
    let (input, position) = counted(std::io::stdin());
    Ok(TextFile { reader: Box::new(input), position })
}

fn counted<R: Read>(source: R) -> (Counted<R>, Arc<AtomicU64>) {
    let position = Arc::new(AtomicU64::new(0));
    let source = BufReader::with_capacity(BUFFER_BYTES, source);
    (Counted { source, position: Arc::clone(&position) }, position)
}

/// Says what to do about a file that needs more memory than it may have.
struct Explained<R>(R);

impl<R: Read> Read for Explained<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer).map_err(|e| {
            let text = e.to_string().to_lowercase();
            if text.contains("too much memory")
                || text.contains("memory limit")
                || text.contains("memory usage limit")
            {
                return std::io::Error::new(
                    e.kind(),
                    "needs more than 128 MiB to decompress; compress it again with a smaller window",
                );
            }
            e
        })
    }
}

/// Counts the bytes that are taken out of its buffer, not those that wait in it.
struct Counted<R> {
    source: BufReader<R>,
    position: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.position.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl<R: Read> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        self.source.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.source.consume(count);
        self.position.fetch_add(count as u64, Ordering::Relaxed);
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
        let xz = |text: &str| liblzma::encode_all(text.as_bytes(), 6).unwrap();
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
        let refused = |path: &str| open_text(Path::new(path)).err().map(|e| e.to_string());
        if Path::new("/dev/zero").exists() {
            assert_eq!(refused("/dev/zero").unwrap(), "/dev/zero: is a device, a file is wanted");
            assert_eq!(refused("/dev/null"), None);
        }
    }

    #[test]
    fn windows_of_128_mib_are_read_and_larger_ones_refused() {
        let folder = tempfile::tempdir().unwrap();
        let frame = |window_log: u32| {
            let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
            encoder.long_distance_matching(true).unwrap();
            encoder.window_log(window_log).unwrap();
            encoder.write_all(b"long ago").unwrap();
            encoder.finish().unwrap()
        };
        let path = folder.path().join("a.txt.zst");
        std::fs::write(&path, frame(27)).unwrap();
        assert_eq!(read(&path), "long ago");
        std::fs::write(&path, frame(28)).unwrap();
        let message = open_text(&path).unwrap().read(&mut [0; 8]).unwrap_err().to_string();
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
        let message = open_text(&path).unwrap().read(&mut [0; 8]).unwrap_err().to_string();
        assert!(message.contains("needs more than 128 MiB"), "{message}");
    }

    #[test]
    fn the_extension_below_the_compression_is_found() {
        assert_eq!(without_compression(Path::new("a/b.jsonl.gz")), Path::new("a/b.jsonl"));
        assert_eq!(without_compression(Path::new("a/b.jsonl")), Path::new("a/b.jsonl"));
    }
}
