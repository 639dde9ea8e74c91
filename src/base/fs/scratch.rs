//! Temporary files for data that does not fit into memory. A scratch file has no name, so it disappears when
//! its handle is closed, even after a crash.
//!
//! Their content is never synced: it is not meant to survive.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};

/// A nameless temporary file: bytes are appended at its end and read at any offset.
#[derive(Debug)]
pub struct ScratchFile {
    file: File,
    folder: PathBuf,
    len_bytes: u64,
}

impl ScratchFile {
    /// Creates an empty file on the file system of `folder`, which is created if it is missing.
    pub fn create(folder: &Path) -> Result<Self> {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let (file, path) = super::staged::create_temporary(&folder.join(format!("scratch-{number}")))?;
        super::remove_file(&path)?;
        Ok(Self { file, folder: folder.to_path_buf(), len_bytes: 0 })
    }

    /// Bytes written so far.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Appends bytes to the end, without buffering.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all(bytes);
        written
            .map_err(|e| super::space::unwritten(&self.folder, None, e.into()))
            .context("a temporary file is needed")?;
        self.len_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Fills `bytes` with the content from `offset` on.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        let read = self.file.read_exact_at(bytes, offset);
        read.with_context(|| format!("cannot read a temporary file in `{}`", self.folder.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_appended_is_read_at_its_place_and_leaves_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = ScratchFile::create(folder.path()).unwrap();
        file.append(b"abc").unwrap();
        file.append(b"defg").unwrap();
        let mut bytes = [0; 3];
        file.read_at(&mut bytes, 2).unwrap();
        assert_eq!(&bytes, b"cde");
        assert!(file.read_at(&mut bytes, 5).is_err());
        assert_eq!(file.len_bytes(), 7);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
