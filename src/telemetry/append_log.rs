//! A file that only grows, by whole entries: a failed write is taken back and tried again with the next one.

use std::io::Write;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;

use crate::error::Problem;
use crate::fs;
use crate::fs::File;

/// Entries that wait longer than this for room on the disk are given up.
const MOST_PENDING_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct AppendLog {
    path: PathBuf,
    file: File,
    good_bytes: u64,
    pending: Vec<u8>,
}

impl AppendLog {
    /// Opens `path` to write behind what it holds.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = fs::append(path)?;
        Ok(Self { path: path.to_path_buf(), file, good_bytes: fs::len_bytes(path)?, pending: Vec::new() })
    }

    /// Adds one entry. A file that was removed is begun again, and an error says so once.
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
            // Half an entry would make the rest of the file unreadable. If even this fails, the reader drops
            // that line.
            let _ = self.file.set_len(self.good_bytes);
        }
        written.with_context(|| format!("cannot write `{}`", self.path.display()))?;
        if is_gone {
            let message = "was removed or replaced, and with it what it held";
            return Err(Problem::new(message).at(self.path.display()).into());
        }
        Ok(())
    }

    /// Writes what is pending and makes the file durable.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.append(&[])?;
        self.file.sync_data().with_context(|| format!("cannot write `{}`", self.path.display()))
    }
}
