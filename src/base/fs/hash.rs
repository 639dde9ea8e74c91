//! Hashes in hexadecimal: SHA-256 of bytes and of what a reader gives, and a quick one of samples of a file.

use std::fmt::Write;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Context;
use anyhow::Result;
use sha2::Digest;
use sha2::Sha256;
use xxhash_rust::xxh3::Xxh3;
use xxhash_rust::xxh3::xxh3_64;

/// SHA-256 of what is added to it piece by piece.
#[derive(Clone, Default)]
pub struct Sha256Sum(Sha256);

impl Sha256Sum {
    /// Goes on with these bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of all of it, in hexadecimal.
    pub fn finish(self) -> String {
        self.0.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
            write!(text, "{byte:02x}").expect("writing to a string cannot fail");
            text
        })
    }
}

/// SHA-256 of `parts` one after the other, in hexadecimal.
pub fn sha256_of(parts: &[&[u8]]) -> String {
    let mut sum = Sha256Sum::default();
    for part in parts {
        sum.add(part);
    }
    sum.finish()
}

/// SHA-256 of everything that `reader` still gives, in hexadecimal.
pub fn sha256_of_reader(mut reader: impl Read) -> std::io::Result<String> {
    let mut sum = Sha256Sum::default();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(sum.finish()),
            count => sum.add(&buffer[..count]),
        }
    }
}

/// SHA-256 of a file, in hexadecimal.
pub fn sha256_of_file(path: &Path) -> Result<String> {
    sha256_of_reader(super::open(path)?).with_context(|| format!("cannot read `{}`", path.display()))
}

/// A quick hash of all of a file, in hexadecimal: it reads as fast as the disk does.
pub fn content_hash(path: &Path) -> Result<String> {
    let mut file = super::open(path)?;
    let (mut hash, mut buffer) = (Xxh3::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer).with_context(|| format!("cannot read `{}`", path.display()))? {
            0 => return Ok(shown(&hash)),
            count => hash.update(&buffer[..count]),
        }
    }
}

/// A quick hash of all that was added to it, in hexadecimal.
pub(super) fn shown(hash: &Xxh3) -> String {
    format!("{:032x}", hash.digest128())
}

/// Blocks and bytes of each that [`sample_hash`] reads.
const SAMPLES: (u64, u64) = (16, 4096);

/// A hash of sixteen blocks spread over a file, in hexadecimal: notices nearly every edit and costs the same
/// for any size.
///
/// What cannot be read twice (a pipe) has no hash.
pub fn sample_hash(path: &Path) -> Result<Option<String>> {
    let metadata = std::fs::metadata(path).with_context(|| format!("cannot open `{}`", path.display()))?;
    if !metadata.is_file() && !metadata.is_dir() {
        return Ok(None);
    }
    let file = super::open(path)?;
    let (blocks, block_bytes) = SAMPLES;
    let mut buffer = Vec::new();
    let last = metadata.len().saturating_sub(block_bytes);
    for block in 0..blocks {
        let mut bytes = vec![0; block_bytes as usize];
        let count = file
            .read_at(&mut bytes, last * block / (blocks - 1))
            .with_context(|| format!("cannot read `{}`", path.display()))?;
        buffer.extend_from_slice(&bytes[..count]);
    }
    Ok(Some(format!("{:016x}", xxh3_64(&buffer))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_notice_an_edit_that_keeps_the_length() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut bytes = vec![7; 60_000];
        std::fs::write(file.path(), &bytes).unwrap();
        let before = sample_hash(file.path()).unwrap();
        assert_eq!(sample_hash(file.path()).unwrap(), before);
        bytes[59_999] = 8;
        std::fs::write(file.path(), &bytes).unwrap();
        assert_ne!(sample_hash(file.path()).unwrap(), before);
    }

    #[test]
    fn the_known_answer_of_fips_180_comes_out() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_of(&[b"a", b"bc"]), expected);
        assert_eq!(sha256_of_reader(b"abc".as_slice()).unwrap(), expected);
    }
}
