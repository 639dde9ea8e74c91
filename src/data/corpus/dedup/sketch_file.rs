//! Files of sketches: a header and one record of fixed size for each document of a part of the corpus.
//!
//! Little-endian. Header: magic, version, record size, parameters, count, checksums of the records and of
//! itself. No field is used before it is checked.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::corpus::dedup::sketch::{Parameters, Sketch, Sketcher};
use base::error::Problem;
use base::fs;

const MAGIC: &[u8; 8] = b"mlmskch\0";
/// Version of the format; to be increased whenever the same text gives another sketch.
const VERSION: u32 = 1;
pub(super) const HEADER_BYTES: usize = 48;
/// Bytes that are read at a time, rounded down to whole records.
const BLOCK_BYTES: usize = 256 << 10;

/// Writes the sketches of one part of a corpus; the file gets its name when it is finished.
#[derive(Debug)]
pub struct SketchWriter {
    file: fs::StagedFile,
    parameters: Parameters,
    count: u64,
    checksum: u32,
}

impl SketchWriter {
    /// Starts the file `path` for the sketches of `sketcher`.
    pub fn create(path: &Path, sketcher: &Sketcher) -> Result<Self> {
        let mut file = fs::StagedFile::create(path)?;
        file.write(&[0; HEADER_BYTES])?;
        Ok(Self { file, parameters: sketcher.parameters, count: 0, checksum: 0 })
    }

    /// Adds the sketch of the next document; it must come from the same sketcher.
    pub fn push(&mut self, sketch: &Sketch) -> Result<()> {
        debug_assert_eq!(sketch.record.len(), self.parameters.record_bytes());
        self.checksum = crc32c::crc32c_append(self.checksum, &sketch.record);
        self.count += 1;
        self.file.write(&sketch.record)
    }

    /// Makes the file durable and gives it its name; returns the number of documents in it.
    pub fn finish(self) -> Result<u64> {
        self.file.publish(&header(&self.parameters, self.count, self.checksum))?;
        Ok(self.count)
    }
}

/// A file of sketches whose header and length were checked.
#[derive(Debug)]
pub(super) struct SketchFile {
    pub(super) path: PathBuf,
    pub(super) count: u64,
    record_bytes: usize,
    checksum: u32,
}

impl SketchFile {
    /// Reads and checks the header; sketches of other parameters are an error.
    pub(super) fn open(path: &Path, parameters: &Parameters) -> Result<Self> {
        let mut bytes = [0; HEADER_BYTES];
        let mut file = fs::open(path)?;
        let len_bytes = fs::len_bytes(path)?;
        if len_bytes < HEADER_BYTES as u64 {
            return Err(damaged(
                path,
                &format!("is too short for a file of sketches: it has {len_bytes} bytes"),
            ));
        }
        file.read_exact(&mut bytes).with_context(|| format!("cannot read `{}`", path.display()))?;
        let count = u64_at(&bytes, 32);
        let checksum = u32_at(&bytes, 40);
        if &bytes[..8] != MAGIC {
            return Err(damaged(path, "is not a file of sketches: its first 8 bytes are others"));
        }
        if u32_at(&bytes, 44) != crc32c::crc32c(&bytes[..44]) {
            return Err(damaged(path, "its header, bytes 0 to 48, is damaged (the checksum differs)"));
        }
        if bytes != header(parameters, count, checksum) {
            return Err(damaged(
                path,
                "holds sketches that were made with other settings or by another version",
            ));
        }
        let record_bytes = parameters.record_bytes();
        let expected =
            count.checked_mul(record_bytes as u64).and_then(|n| n.checked_add(HEADER_BYTES as u64));
        if expected != Some(len_bytes) {
            return Err(damaged(
                path,
                &format!("is {len_bytes} bytes long, which is not right for {count} sketches"),
            ));
        }
        Ok(Self { path: path.to_path_buf(), count, record_bytes, checksum })
    }

    /// Calls `each` with every record in order; a wrong checksum is an error after the last record.
    pub(super) fn for_each(&self, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut file = fs::open(&self.path)?;
        file.read_exact(&mut [0; HEADER_BYTES])
            .with_context(|| format!("cannot read `{}`", self.path.display()))?;
        let records_at_once = (BLOCK_BYTES / self.record_bytes).max(1) as u64;
        let mut left = self.count;
        let mut checksum = 0;
        let mut block = vec![0; records_at_once.min(left) as usize * self.record_bytes];
        while left > 0 {
            let records = records_at_once.min(left);
            let block = &mut block[..records as usize * self.record_bytes];
            file.read_exact(block).with_context(|| format!("cannot read `{}`", self.path.display()))?;
            checksum = crc32c::crc32c_append(checksum, block);
            block.chunks_exact(self.record_bytes).try_for_each(&mut each)?;
            left -= records;
        }
        if checksum != self.checksum {
            let message = format!(
                "its {} sketches, from byte {HEADER_BYTES} on, are damaged (the checksum differs)",
                self.count
            );
            return Err(damaged(&self.path, &message));
        }
        Ok(())
    }
}

fn header(parameters: &Parameters, count: u64, checksum: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    let Parameters { permutations, rows, bands, shingle_words } = *parameters;
    bytes[..8].copy_from_slice(MAGIC);
    let numbers = [
        VERSION,
        parameters.record_bytes() as u32,
        permutations as u32,
        rows as u32,
        bands as u32,
        shingle_words as u32,
    ];
    for (place, number) in bytes[8..32].chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes[32..40].copy_from_slice(&count.to_le_bytes());
    bytes[40..44].copy_from_slice(&checksum.to_le_bytes());
    let own = crc32c::crc32c(&bytes[..44]);
    bytes[44..].copy_from_slice(&own.to_le_bytes());
    bytes
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn damaged(path: &Path, message: &str) -> anyhow::Error {
    Problem::new(message)
        .at(path.display())
        .hint("remove it (or the whole prepared folder) and prepare the data again")
        .into()
}
