//! One run per output folder: an advisory lock file that names its holder.
//!
//! The operating system releases the lock when the process ends, however it ends.

use std::fs::File;
use std::fs::OpenOptions;
use std::fs::TryLockError;
use std::io::Read;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;

use crate::error::Problem;

/// Holders have short names.
const HOLDER_BYTES_MAX: u64 = 1 << 10;

/// Holds a folder for this process until dropped.
#[derive(Debug)]
pub struct FolderLock {
    file: File,
    path: PathBuf,
}

impl FolderLock {
    /// Takes the lock of `folder` (file `.lock`), or says which process holds it.
    pub fn take(folder: &Path) -> Result<Self> {
        let lock = Self::open(folder)?;
        if lock.is_taken()? {
            return lock.sign();
        }
        let mut holder = String::new();
        let _ = (&lock.file).take(HOLDER_BYTES_MAX).read_to_string(&mut holder);
        Err(Problem::usage(format!("is in use by another run ({})", holder.trim()))
            .at(folder.display())
            .hint("wait for it, stop it, or choose another `run.output_dir`")
            .into())
    }

    /// Takes the lock of `folder`; none where another process holds it.
    pub fn take_if_free(folder: &Path) -> Result<Option<Self>> {
        let lock = Self::open(folder)?;
        if lock.is_taken()? { lock.sign().map(Some) } else { Ok(None) }
    }

    /// Takes the lock of `folder` when it is free; calls `waiting` once where that is not at once.
    pub fn wait_for(folder: &Path, waiting: impl FnOnce()) -> Result<Self> {
        let lock = Self::open(folder)?;
        if !lock.is_taken()? {
            waiting();
            lock.file.lock().with_context(|| format!("cannot lock `{}`", lock.path.display()))?;
        }
        lock.sign()
    }

    fn open(folder: &Path) -> Result<Self> {
        super::create_folder(folder)?;
        let path = folder.join(".lock");
        let file = OpenOptions::new()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            // A link in a shared folder would have the holder's name written into what it points to.
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .with_context(|| format!("cannot open `{}`", path.display()))?;
        Ok(Self { file, path })
    }

    /// Tries to take it, and says whether it is taken now.
    fn is_taken(&self) -> Result<bool> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(e)) => {
                Err(e).with_context(|| format!("cannot lock `{}`", self.path.display()))
            }
        }
    }

    /// Writes who holds it. A folder may be shared by machines, whose numbers of processes are their own.
    fn sign(mut self) -> Result<Self> {
        let host = super::host_name().unwrap_or_else(|| "unknown".to_string());
        let signed = self
            .file
            .set_len(0)
            .and_then(|()| writeln!(self.file, "pid {} on host {host}", std::process::id()));
        signed.with_context(|| format!("cannot write `{}`", self.path.display()))?;
        Ok(self)
    }
}

/// Device and inode of the lock file in a folder, if there is one. They change when the folder is removed and made
/// again.
pub fn lock_identity(folder: &Path) -> Option<(u64, u64)> {
    let file = std::fs::symlink_metadata(folder.join(".lock")).ok()?;
    Some((file.dev(), file.ino()))
}

/// Returns true if a process has ever locked this folder.
pub fn has_lock(folder: &Path) -> bool {
    folder.join(".lock").is_file()
}

/// Whether another process holds this folder. It leaves nothing behind.
pub fn is_locked(folder: &Path) -> bool {
    let Ok(file) = super::open(&folder.join(".lock")) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let told = FolderLock::wait_for(folder.path(), || panic!("it is free")).unwrap();
        drop(told);
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
