//! Hashes in hexadecimal: SHA-256 of bytes, readers and files, and faster hashes of a file or of samples of
//! it.

use std::fmt::Write;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// SHA-256 of bytes that are added piece by piece.
#[derive(Clone, Default)]
pub struct Sha256Sum(Sha256);

impl Sha256Sum {
    /// Adds bytes to the hash.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the hash of all added bytes, in hexadecimal.
    pub fn finish(self) -> String {
        self.0.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
            write!(text, "{byte:02x}").expect("writing to a string cannot fail");
            text
        })
    }
}

/// SHA-256 of the concatenated `parts`, in hexadecimal.
pub fn sha256_of(parts: &[&[u8]]) -> String {
    let mut sum = Sha256Sum::default();
    for part in parts {
        sum.add(part);
    }
    sum.finish()
}

/// SHA-256 of all bytes that `reader` still yields, in hexadecimal.
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

/// XXH3 hash (128 bits) of a whole file, in hexadecimal. Only the disk limits its speed.
pub fn content_hash(path: &Path) -> Result<String> {
    let mut file = super::open(path)?;
    let mut hash = Xxh3::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).with_context(|| format!("cannot read `{}`", path.display()))? {
            0 => return Ok(hex_digest(&hash)),
            count => hash.update(&buffer[..count]),
        }
    }
}

/// XXH3 hash (128 bits) of all bytes added to `hash`, in hexadecimal.
pub(super) fn hex_digest(hash: &Xxh3) -> String {
    format!("{:032x}", hash.digest128())
}

/// Number of blocks that [`sample_hash`] reads.
const SAMPLE_BLOCKS: u64 = 16;

/// Size of each block that [`sample_hash`] reads.
const SAMPLE_BYTES: u64 = 4096;

/// XXH3 hash (64 bits) of sixteen blocks spread evenly over a file, in hexadecimal. It notices nearly every
/// edit and costs the same for any file size.
///
/// `None` for a file that cannot be read twice, such as a pipe.
pub fn sample_hash(path: &Path) -> Result<Option<String>> {
    let metadata = std::fs::metadata(path).with_context(|| format!("cannot open `{}`", path.display()))?;
    if !metadata.is_file() && !metadata.is_dir() {
        return Ok(None);
    }
    let file = super::open(path)?;
    let mut buffer = Vec::new();
    let last = metadata.len().saturating_sub(SAMPLE_BYTES);
    for block in 0..SAMPLE_BLOCKS {
        let mut bytes = vec![0; SAMPLE_BYTES as usize];
        let count = file
            .read_at(&mut bytes, last * block / (SAMPLE_BLOCKS - 1))
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
