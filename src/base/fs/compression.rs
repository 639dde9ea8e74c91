//! Compressed files: recognised by name or by first bytes, and decompressed in bounded memory.

use std::io::BufRead;
use std::io::Error;
use std::io::ErrorKind;
use std::io::Read;
use std::io::Result;
use std::path::Path;
use std::path::PathBuf;

use bzip2::bufread::BzDecoder;
use flate2::bufread::GzDecoder;

/// The largest zstd window that is accepted, as a power of two: 128 MiB.
///
/// It is what `zstd -d` accepts without further options and what `zstd --long` writes, so large corpora use
/// it; a smaller cap would refuse them. A frame that claims it and holds little touches little of it, and no
/// file can make a reader hold more than one window: half of the 256 MiB that a hostile file may cost.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// The most memory that an xz decoder may take, in bytes: the same 128 MiB (`xz -9` writes files that need
/// 65).
const XZ_MEMORY_BYTES_MAX: u64 = 128 << 20;

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
    /// The one that the last extension of `path` names, whatever its case.
    pub fn of(path: &Path) -> Self {
        match path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("gz" | "tgz") => Self::Gzip,
            Some("zst" | "tzst") => Self::Zstd,
            Some("bz2" | "tbz" | "tbz2") => Self::Bzip2,
            Some("xz" | "txz") => Self::Xz,
            _ => Self::None,
        }
    }

    /// The one that a file of these first bytes has.
    pub(super) fn of_bytes(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            // A frame, or one of those that are passed over.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            // A block begins with the digits of pi, the end of a file without one with those of its root.
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
    match Compression::of(path) {
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

/// A decoder of one compressed stream.
trait Stream<R>: Read + Sized {
    /// The name of the compression, as users know it.
    const NAME: &'static str;

    /// First bytes of a stream; those of zstd's are of two kinds.
    const STARTS: &'static [u8];

    fn begin(source: R) -> Result<Self>;

    /// The source after the end of the compressed stream.
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

/// Streams one after the other, with zeros between and behind them, as tapes and some disks pad them: gzip's
/// own program passes over these, too.
struct Streams<D, R> {
    at: At<D, R>,
}

enum At<D, R> {
    /// In front of a stream, of zeros, or at the end.
    Between(R),
    Inside(D),
    /// Behind the last one, or behind an error.
    End,
}

impl<D: Stream<R>, R: BufRead> Streams<D, R> {
    fn new(source: R) -> Self {
        Self { at: At::Between(source) }
    }

    /// Moves to the next stream or to the end.
    fn next(mut source: R) -> Result<At<D, R>> {
        loop {
            let chunk = source.fill_buf()?;
            let Some(&last) = chunk.last() else { return Ok(At::End) };
            let zeros = if last == 0 && chunk.iter().all(|byte| *byte == 0) {
                chunk.len()
            } else {
                chunk.iter().take_while(|byte| **byte == 0).count()
            };
            let first = chunk.get(zeros).copied();
            source.consume(zeros);
            match first {
                None => {}
                Some(byte) if D::STARTS.contains(&byte) => return Ok(At::Inside(D::begin(source)?)),
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
            match std::mem::replace(&mut self.at, At::End) {
                At::End => return Ok(0),
                At::Between(source) => self.at = Self::next(source)?,
                At::Inside(mut stream) => match stream.read(buffer)? {
                    0 => self.at = At::Between(stream.end()),
                    count => {
                        self.at = At::Inside(stream);
                        return Ok(count);
                    }
                },
            }
        }
    }
}

/// Says what to do about a file that needs more memory than it may have.
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
    fn zeros_between_and_behind_streams_are_passed_over_and_other_bytes_are_not() {
        let read = |compression, bytes: &[u8]| -> Result<Vec<u8>> {
            let mut text = Vec::new();
            let source = std::io::BufReader::with_capacity(7, std::io::Cursor::new(bytes.to_vec()));
            decompressed(compression, source)?.read_to_end(&mut text)?;
            Ok(text)
        };
        let gzip = |text: &[u8]| {
            let mut gzip = Vec::new();
            flate2::bufread::GzEncoder::new(text, flate2::Compression::fast())
                .read_to_end(&mut gzip)
                .map(|_| gzip)
        };
        let bzip2 = |text: &[u8]| {
            let mut bzip2 = Vec::new();
            bzip2::bufread::BzEncoder::new(text, bzip2::Compression::fast())
                .read_to_end(&mut bzip2)
                .map(|_| bzip2)
        };
        let zstd = |text: &[u8]| zstd::encode_all(text, 1);
        let zeros = vec![0; 100];
        for (compression, one, two) in [
            (Compression::Gzip, gzip(b"one ").unwrap(), gzip(b"two").unwrap()),
            (Compression::Bzip2, bzip2(b"one ").unwrap(), bzip2(b"two").unwrap()),
            (Compression::Zstd, zstd(b"one ").unwrap(), zstd(b"two").unwrap()),
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
}
