//! Reading progress of a file and a hash of the bytes read so far, for code that does not read the file
//! itself.

use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use xxhash_rust::xxh3::Xxh3;

/// Reading progress of a file: the number of bytes read so far, and their hash.
#[derive(Default)]
pub struct Progress {
    bytes: AtomicU64,
    hash: Mutex<Xxh3>,
}

impl Progress {
    /// Number of bytes read so far, counted as they are on disk, before decompression.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Hash of the bytes read so far; [`super::content_hash`] computes the same hash for a whole file.
    pub fn hash(&self) -> String {
        super::hash::hex_digest(&self.hash.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reader that counts and hashes the bytes that pass through it.
pub(super) struct Counted<R> {
    source: R,
    progress: Arc<Progress>,
}

impl<R> Counted<R> {
    pub(super) fn new(source: R, progress: Arc<Progress>) -> Self {
        Self { source, progress }
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.progress.bytes.fetch_add(count as u64, Ordering::Relaxed);
        self.progress.hash.lock().unwrap_or_else(PoisonError::into_inner).update(&buffer[..count]);
        Ok(count)
    }
}
