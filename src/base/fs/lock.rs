//! A lock on an output folder, so that only one run writes to it: an advisory lock file that names its
//! holder.
//!
//! The operating system releases the lock when the process ends for any reason.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::error::Problem;

/// The most bytes to read of a lock file: the name of a holder is short.
const HOLDER_BYTES_MAX: u64 = 1 << 10;

/// A locked folder. Dropping this value releases the lock.
#[derive(Debug)]
pub struct FolderLock {
    file: File,
    path: PathBuf,
}

impl FolderLock {
    /// Locks `folder` with its file `.lock`. If another process holds the lock, the error names that process.
    pub fn take(folder: &Path) -> Result<Self> {
        let lock = Self::open(folder)?;
        if lock.try_take()? {
            return lock.write_holder();
        }
        let mut holder = String::new();
        let _ = (&lock.file).take(HOLDER_BYTES_MAX).read_to_string(&mut holder);
        Err(Problem::usage(format!("is in use by another run ({})", holder.trim()))
            .at(folder.display())
            .hint("wait for it, stop it, or choose another `run.output_dir`")
            .into())
    }

    /// Locks `folder`; `None` if another process holds the lock.
    pub fn take_if_free(folder: &Path) -> Result<Option<Self>> {
        let lock = Self::open(folder)?;
        if lock.try_take()? { lock.write_holder().map(Some) } else { Ok(None) }
    }

    /// Locks `folder`. If another process holds the lock, calls `waiting` once and waits until the lock is
    /// free.
    pub fn wait_for(folder: &Path, waiting: impl FnOnce()) -> Result<Self> {
        let lock = Self::open(folder)?;
        if !lock.try_take()? {
            waiting();
            lock.file.lock().with_context(|| format!("cannot lock `{}`", lock.path.display()))?;
        }
        lock.write_holder()
    }

    /// Releases the lock, and removes the folder if nothing but the lock file is in it.
    pub fn discard(self) -> Result<()> {
        let folder = super::parent_of(&self.path);
        if super::list(&folder)?.iter().all(|path| *path == self.path) {
            super::remove_file(&self.path)?;
            // Another process may have put something there just now: then the folder stays.
            let _ = std::fs::remove_dir(&folder);
        }
        Ok(())
    }

    fn open(folder: &Path) -> Result<Self> {
        super::create_folder(folder)?;
        let path = folder.join(".lock");
        let file = OpenOptions::new()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            // Following a link in a shared folder would write the holder's name into the file that it points
            // to.
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .with_context(|| format!("cannot open `{}`", path.display()))?;
        Ok(Self { file, path })
    }

    /// Tries to take the lock without waiting. Returns true if this process holds it now.
    fn try_take(&self) -> Result<bool> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(e)) => {
                Err(e).with_context(|| format!("cannot lock `{}`", self.path.display()))
            }
        }
    }

    /// Writes the process id and the host name of the holder into the lock file. The host matters because
    /// machines that share the folder may use the same process ids.
    fn write_holder(mut self) -> Result<Self> {
        let host = super::host_name().unwrap_or_else(|| "unknown".to_string());
        let signed = self
            .file
            .set_len(0)
            .and_then(|()| writeln!(self.file, "pid {} on host {host}", std::process::id()));
        signed.with_context(|| format!("cannot write `{}`", self.path.display()))?;
        Ok(self)
    }
}

/// Device and inode of the lock file in a folder, if it exists. They change when the folder is removed and
/// created again.
pub fn lock_identity(folder: &Path) -> Option<(u64, u64)> {
    let file = std::fs::symlink_metadata(folder.join(".lock")).ok()?;
    Some((file.dev(), file.ino()))
}

/// Returns true if a process has ever locked this folder: the lock file stays after the lock is released.
pub fn has_lock(folder: &Path) -> bool {
    folder.join(".lock").is_file()
}

/// Returns true if another process holds the lock of this folder. Creates no file.
pub fn is_locked(folder: &Path) -> bool {
    let Ok(file) = super::open(&folder.join(".lock")) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discarded_lock_leaves_no_empty_folder_and_keeps_files() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("run");
        FolderLock::take(&folder).unwrap().discard().unwrap();
        assert!(!folder.exists());
        let lock = FolderLock::take(&folder).unwrap();
        std::fs::write(folder.join("file"), "kept").unwrap();
        lock.discard().unwrap();
        assert!(folder.join("file").exists() && has_lock(&folder));
    }

    #[test]
    fn the_holder_is_named_with_its_host_and_one_that_waits_comes_next() {
        let folder = tempfile::tempdir().unwrap();
        let held = FolderLock::take(folder.path()).unwrap();
        let message = FolderLock::take(folder.path()).unwrap_err().to_string();
        let pid = std::process::id();
        assert!(message.contains(&format!("is in use by another run (pid {pid} on host ")), "{message}");
        assert!(FolderLock::take_if_free(folder.path()).unwrap().is_none());
        assert!(is_locked(folder.path()));
        let path = folder.path().to_path_buf();
        let (sender, receiver) = std::sync::mpsc::channel();
        let next = std::thread::spawn(move || FolderLock::wait_for(&path, || sender.send(()).unwrap()));
        receiver.recv().unwrap();
        drop(held);
        assert!(next.join().unwrap().is_ok());
        let second = FolderLock::wait_for(folder.path(), || panic!("it is free")).unwrap();
        drop(second);
        assert!(!is_locked(folder.path()) && !is_locked(&folder.path().join("none")));
        assert!(FolderLock::take_if_free(folder.path()).unwrap().is_some());
    }

    #[test]
    fn a_link_in_its_place_is_not_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "untouched").unwrap();
        std::os::unix::fs::symlink(&victim, folder.path().join(".lock")).unwrap();
        let message = format!("{:#}", FolderLock::take(folder.path()).unwrap_err());
        assert!(message.contains(".lock"), "{message}");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
    }
}
