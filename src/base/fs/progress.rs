//! How far a file is read, and a hash of all that was read of it, for those who do not read it themselves.

use std::io::Read;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use xxhash_rust::xxh3::Xxh3;

/// How far a file is read.
#[derive(Default)]
pub struct Progress {
    bytes: AtomicU64,
    hash: Mutex<Xxh3>,
}

impl Progress {
    /// Bytes of the file, as it lies on the disk, that were read.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Hash of these bytes, as [`super::content_hash`] has it of a whole file.
    pub fn hash(&self) -> String {
        super::hash::shown(&self.hash.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Counts what is read, and hashes it.
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
