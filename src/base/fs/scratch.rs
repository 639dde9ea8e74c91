//! Files for what does not fit into memory: without a name, so that they are gone with their handle, also
//! after a crash.
//!
//! Nothing in them is durable or meant to be.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use anyhow::Context;
use anyhow::Result;

/// A nameless file that is written at its end and read anywhere.
#[derive(Debug)]
pub struct ScratchFile {
    file: File,
    folder: PathBuf,
    len_bytes: u64,
}

impl ScratchFile {
    /// An empty file on the disk of `folder`, which is created when it is missing.
    pub fn create(folder: &Path) -> Result<Self> {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let (file, path) = super::staged::create_beside(&folder.join(format!("scratch-{number}")))?;
        super::remove_file(&path)?;
        Ok(Self { file, folder: folder.to_path_buf(), len_bytes: 0 })
    }

    /// Bytes written so far.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Adds to the end; there is no buffer in between.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all(bytes);
        let failed = |e: std::io::Error| super::space::unwritten(&self.folder, None, e.into());
        written.map_err(failed).context("a temporary file is needed")?;
        self.len_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Fills `bytes` with what stands at `offset`.
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
