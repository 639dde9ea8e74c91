//! An append-only file of whole entries. A failed write is undone and retried together with the next entry.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use base::error::Problem;
use base::fs;
use base::fs::File;

/// Largest total size of entries that wait to be written, such as for space on a full disk. Further entries
/// are dropped.
const MOST_PENDING_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct AppendLog {
    path: PathBuf,
    file: File,
    /// Length of the file up to the last whole entry.
    good_bytes: u64,
    /// Entries that are not written yet.
    pending: Vec<u8>,
}

impl AppendLog {
    /// Opens `path` for writing after its present end.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = fs::append(path)?;
        Ok(Self { path: path.to_path_buf(), file, good_bytes: fs::len_bytes(path)?, pending: Vec::new() })
    }

    /// Appends one entry. If the file was removed or replaced, writes a new one and returns an error that
    /// says so, once.
    pub(super) fn append(&mut self, entry: &[u8]) -> Result<()> {
        if self.pending.len() + entry.len() <= MOST_PENDING_BYTES {
            self.pending.extend_from_slice(entry);
        }
        let is_gone = !fs::is_still_at(&self.file, &self.path);
        if is_gone {
            let again = Self::open(&self.path)?;
            (self.file, self.good_bytes) = (again.file, again.good_bytes);
        }
        let written = self.file.write_all(&self.pending);
        if written.is_ok() {
            self.good_bytes += self.pending.len() as u64;
            self.pending.clear();
        } else {
            // Half an entry would make the rest of the file unreadable. If even the truncation fails, readers
            // skip the damaged line.
            let _ = self.file.set_len(self.good_bytes);
        }
        written.with_context(|| format!("cannot write `{}`", self.path.display()))?;
        if is_gone {
            let message = "was removed or replaced, and with it what it held";
            return Err(Problem::new(message).at(self.path.display()).into());
        }
        Ok(())
    }

    /// Writes pending entries and flushes the file to disk.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.append(&[])?;
        self.file.sync_data().with_context(|| format!("cannot write `{}`", self.path.display()))
    }
}
