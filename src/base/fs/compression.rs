//! Compressed files: recognised by name or by first bytes, and decompressed in bounded memory.

use std::io::{BufRead, Error, ErrorKind, Read, Result};
use std::path::{Path, PathBuf};

use bzip2::bufread::BzDecoder;
use flate2::bufread::GzDecoder;

/// The largest zstd window that is accepted, as a power of two: 128 MiB.
///
/// `zstd -d` accepts this window without further options and `zstd --long` writes it, so large corpora use
/// it; a smaller cap would refuse them. A frame that declares this window but holds little data touches
/// little of its memory. No file makes a reader allocate more than one window: half of the 256 MiB that a
/// hostile file may cost.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// The most memory that an xz decoder may take, in bytes: 128 MiB, as for zstd. Files of `xz -9` need 65 MiB.
const XZ_MEMORY_BYTES_MAX: u64 = 128 << 20;

/// Compression format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not compressed.
    None,
    /// gzip; a file may have several members.
    Gzip,
    /// Zstandard; a file may have several frames.
    Zstd,
    /// bzip2; a file may have several streams.
    Bzip2,
    /// xz; a file may have several streams.
    Xz,
}

impl Compression {
    /// The compression that the last extension of `path` names, in upper or lower case.
    pub fn from_path(path: &Path) -> Self {
        match path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("gz" | "tgz") => Self::Gzip,
            Some("zst" | "tzst") => Self::Zstd,
            Some("bz2" | "tbz" | "tbz2") => Self::Bzip2,
            Some("xz" | "txz") => Self::Xz,
            _ => Self::None,
        }
    }

    /// The compression whose magic number is at the start of `head`, the first bytes of a file.
    pub(super) fn from_bytes(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            // The magic number of an ordinary frame, or of a skippable frame.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            // A block starts with the digits of pi. A file without blocks starts with its footer: the digits
            // of sqrt(pi).
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..]
            | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, 0x38, 0x50, 0x90, ..] => Some(Self::Bzip2),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            _ => None,
        }
    }
}

/// `path` without the extension of its compression: `a/b.jsonl.gz` gives `a/b.jsonl`, `a.tgz` gives `a.tar`.
pub fn without_compression(path: &Path) -> PathBuf {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    match Compression::from_path(path) {
        Compression::None => path.to_path_buf(),
        _ if extension.starts_with(['t', 'T']) => path.with_extension("tar"),
        _ => path.with_extension(""),
    }
}

/// The decompressed content of `source`.
pub(super) fn decompressed<R: BufRead + Send + 'static>(
    compression: Compression,
    source: R,
) -> Result<Box<dyn Read + Send>> {
    Ok(match compression {
        Compression::None => Box::new(source),
        Compression::Gzip => Box::new(Streams::<GzDecoder<R>, R>::new(source)),
        Compression::Bzip2 => Box::new(Streams::<BzDecoder<R>, R>::new(source)),
        Compression::Zstd => {
            Box::new(Explained(Streams::<zstd::stream::read::Decoder<'static, R>, R>::new(source)))
        }
        Compression::Xz => {
            let stream = liblzma::stream::Stream::new_stream_decoder(
                XZ_MEMORY_BYTES_MAX,
                liblzma::stream::CONCATENATED,
            )?;
            Box::new(Explained(liblzma::bufread::XzDecoder::new_stream(source, stream)))
        }
    })
}

/// A decoder of a single compressed stream: a gzip member, a bzip2 stream or a zstd frame.
trait Stream<R>: Read + Sized {
    /// The name of the compression in error messages.
    const NAME: &'static str;

    /// Bytes that a stream may start with; zstd has ordinary and skippable frames.
    const STARTS: &'static [u8];

    fn begin(source: R) -> Result<Self>;

    /// Returns the source, which continues after the end of the compressed stream.
    fn end(self) -> R;
}

impl<R: BufRead> Stream<R> for GzDecoder<R> {
    const NAME: &'static str = "gzip";
    const STARTS: &'static [u8] = &[0x1f];

    fn begin(source: R) -> Result<Self> {
        Ok(Self::new(source))
    }

    fn end(self) -> R {
        self.into_inner()
    }
}

impl<R: BufRead> Stream<R> for BzDecoder<R> {
    const NAME: &'static str = "bzip2";
    const STARTS: &'static [u8] = b"B";

    fn begin(source: R) -> Result<Self> {
        Ok(Self::new(source))
    }

    fn end(self) -> R {
        self.into_inner()
    }
}

impl<R: BufRead> Stream<R> for zstd::stream::read::Decoder<'static, R> {
    const NAME: &'static str = "zstd";
    const STARTS: &'static [u8] = &[
        0x28, 0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x5b, 0x5c, 0x5d, 0x5e, 0x5f,
    ];

    fn begin(source: R) -> Result<Self> {
        let mut decoder = Self::with_buffer(source)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
        Ok(decoder.single_frame())
    }

    fn end(self) -> R {
        self.finish()
    }
}

/// Decodes all streams of a source. Zero bytes between and after the streams are skipped, as `gzip` does:
/// tapes and some disks pad files with zeros.
struct Streams<D, R> {
    state: State<D, R>,
}

enum State<D, R> {
    /// Before a stream, before padding zeros, or at the end of the source.
    Between(R),
    Inside(D),
    /// After the last stream, or after an error.
    End,
}

impl<D: Stream<R>, R: BufRead> Streams<D, R> {
    fn new(source: R) -> Self {
        Self { state: State::Between(source) }
    }

    /// Skips zeros and starts the next stream; `State::End` at the end of the source.
    fn next(mut source: R) -> Result<State<D, R>> {
        loop {
            let chunk = source.fill_buf()?;
            let Some(&last) = chunk.last() else { return Ok(State::End) };
            let zeros = if last == 0 && chunk.iter().all(|byte| *byte == 0) {
                chunk.len()
            } else {
                chunk.iter().take_while(|byte| **byte == 0).count()
            };
            let first = chunk.get(zeros).copied();
            source.consume(zeros);
            match first {
                None => {}
                Some(byte) if D::STARTS.contains(&byte) => return Ok(State::Inside(D::begin(source)?)),
                Some(_) => {
                    let message = format!("bytes behind the end of the {} stream belong to none", D::NAME);
                    return Err(Error::new(ErrorKind::InvalidData, message));
                }
            }
        }
    }
}

impl<D: Stream<R>, R: BufRead> Read for Streams<D, R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match std::mem::replace(&mut self.state, State::End) {
                State::End => return Ok(0),
                State::Between(source) => self.state = Self::next(source)?,
                State::Inside(mut stream) => match stream.read(buffer)? {
                    0 => self.state = State::Between(stream.end()),
                    count => {
                        self.state = State::Inside(stream);
                        return Ok(count);
                    }
                },
            }
        }
    }
}

/// Replaces the error of a decoder that runs out of its memory limit by one that says what to do.
struct Explained<R>(R);

impl<R: Read> Read for Explained<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.0.read(buffer).map_err(|e| {
            let text = e.to_string().to_lowercase();
            if text.contains("too much memory")
                || text.contains("memory limit")
                || text.contains("memory usage limit")
            {
                return Error::new(
                    e.kind(),
                    "needs more than 128 MiB to decompress; compress it again with a smaller window",
                );
            }
            e
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_between_and_after_streams_are_skipped_and_other_bytes_are_not() {
        let zeros = vec![0; 100];
        for (compression, one, two) in [
            (Compression::Gzip, gzip(b"one "), gzip(b"two")),
            (Compression::Bzip2, bzip2(b"one "), bzip2(b"two")),
            (Compression::Zstd, zstd(b"one "), zstd(b"two")),
        ] {
            let padded = [&one, &zeros, &two, &zeros].map(Vec::as_slice).concat();
            assert_eq!(read(compression, &padded).unwrap(), b"one two", "{compression:?}");
            let garbage = [&one, b"\0rest".as_slice()].concat();
            let message = read(compression, &garbage).unwrap_err().to_string();
            assert!(message.contains("bytes behind the end of the"), "{message}");
            assert!(read(compression, &one[..one.len() - 1]).is_err(), "{compression:?} is cut off");
        }
        let xz = [liblzma::encode_all(b"one".as_slice(), 1).unwrap(), vec![0; 100]].concat();
        assert_eq!(read(Compression::Xz, &xz).unwrap(), b"one");
    }

    #[test]
    fn the_extension_below_the_compression_is_found() {
        assert_eq!(without_compression(Path::new("a/b.jsonl.gz")), Path::new("a/b.jsonl"));
        assert_eq!(without_compression(Path::new("a/b.jsonl")), Path::new("a/b.jsonl"));
        assert_eq!(without_compression(Path::new("a/b.TGZ")), Path::new("a/b.tar"));
    }

    fn read(compression: Compression, bytes: &[u8]) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        let source = std::io::BufReader::with_capacity(7, std::io::Cursor::new(bytes.to_vec()));
        decompressed(compression, source)?.read_to_end(&mut text)?;
        Ok(text)
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut gzip = Vec::new();
        let mut encoder = flate2::bufread::GzEncoder::new(text, flate2::Compression::fast());
        encoder.read_to_end(&mut gzip).unwrap();
        gzip
    }

    fn bzip2(text: &[u8]) -> Vec<u8> {
        let mut bzip2 = Vec::new();
        let mut encoder = bzip2::bufread::BzEncoder::new(text, bzip2::Compression::fast());
        encoder.read_to_end(&mut bzip2).unwrap();
        bzip2
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        zstd::encode_all(text, 1).unwrap()
    }
}
