//! One run per output folder: an advisory lock file that names its holder.
//!
//! The operating system releases the lock when the process ends, however it ends.

use std::fs::File;
use std::fs::OpenOptions;
use std::fs::TryLockError;
use std::io::Read;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use anyhow::Result;

use crate::error::Problem;

/// Holds a folder for this process until dropped.
#[derive(Debug)]
pub struct FolderLock {
    _file: File,
}

impl FolderLock {
    /// Takes the lock of `folder` (file `.lock`), or says which process holds it.
    pub fn take(folder: &Path) -> Result<Self> {
        super::create_folder(folder)?;
        let path = folder.join(".lock");
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            // A link in a shared folder would have the holder's number written into what it points to.
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .with_context(|| format!("cannot open `{}`", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                return Err(Problem::usage(format!("is in use by another run ({})", holder.trim()))
                    .at(folder.display())
                    .hint("wait for it, stop it, or choose another `run.output_dir`")
                    .into());
            }
            Err(TryLockError::Error(e)) => {
                return Err(e).with_context(|| format!("cannot lock `{}`", path.display()));
            }
        }
        file.set_len(0)?;
        writeln!(file, "pid {}", std::process::id())?;
        Ok(Self { _file: file })
    }
}
