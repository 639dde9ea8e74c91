//! Free space of file systems, and the limit on the size of files (`ulimit -f`).

use std::ffi::CString;
use std::io;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};

use crate::error::{Class, Problem, is_full};
use crate::fs::limits::{FILE_SIZE, limit_bytes};
use crate::quantity::format_bytes;

/// Turns a write past the limit of `ulimit -f` into an error, as on a full disk. By default, the signal
/// `SIGXFSZ` ends the process without a message.
pub fn heed_size_limit() {
    // The flag that the handler sets is never read, because the write itself fails. If the handler cannot be
    // installed, the default remains.
    let _ = signal_hook::flag::register(libc::SIGXFSZ, Arc::default());
}

/// Returns an error if fewer than `needed_bytes` are free on the file system of `path`; its message starts
/// with `what`, which says what the space is for. If the free space is unknown, the check passes and the
/// write itself may fail.
pub fn require_space(path: &Path, needed_bytes: u64, what: &str) -> Result<(), Problem> {
    match free_bytes(path) {
        Ok(free) if free < needed_bytes => {
            let needed = format_bytes(needed_bytes);
            let free = format_bytes(free);
            Err(Problem::new(format!("{what}: {needed} are needed, {free} are free"))
                .at(path.display())
                .class(Class::Disk))
        }
        _ => Ok(()),
    }
}

/// Adds context to an error of writing `path`. If a lack of space caused it, the context names the needed
/// size (where it is known) and the limit that was reached.
pub(super) fn unwritten(path: &Path, size_bytes: Option<u64>, error: anyhow::Error) -> anyhow::Error {
    let name = path.display();
    let Some(limit) = room_left(path, &error) else {
        return error.context(format!("cannot write `{name}`"));
    };
    let needed = size_bytes.map(|bytes| format!("{} are needed, ", format_bytes(bytes))).unwrap_or_default();
    error.context(format!("cannot write `{name}`: {needed}{limit}"))
}

/// Describes the limit that caused `error` on the file system of `path`: file size, inodes, quota or free
/// bytes. `None` if no such limit caused it.
pub fn room_left(path: &Path, error: &anyhow::Error) -> Option<String> {
    let full: &io::Error = error.chain().filter_map(|cause| cause.downcast_ref()).find(|e| is_full(e))?;
    let stats = statistics(path).ok();
    Some(match full.kind() {
        ErrorKind::FileTooLarge => match limit_bytes(Path::new("/"), FILE_SIZE) {
            Some(most) => format!("a file may have {} at most (`ulimit -f`)", format_bytes(most)),
            None => "this file system takes no file of this size".to_string(),
        },
        ErrorKind::QuotaExceeded => "the quota of this user is used up".to_string(),
        _ => {
            let stats = stats?;
            let free = format_bytes(free_of(&stats));
            // Some file systems have no fixed number of inodes, and report 0.
            if stats.f_files > 0 && stats.f_favail == 0 {
                format!("no file can be added there (inodes), though {free} are free")
            } else {
                format!("{free} are free")
            }
        }
    })
}

/// Bytes that this user may still write on the file system of `path`, or of its nearest existing parent
/// folder.
pub fn free_bytes(path: &Path) -> Result<u64> {
    Ok(free_of(&statistics(path)?))
}

#[expect(clippy::useless_conversion, reason = "these fields are 32 bits wide on some platforms")]
fn free_of(stats: &libc::statvfs) -> u64 {
    u64::from(stats.f_bavail).saturating_mul(u64::from(stats.f_frsize))
}

/// Statistics of the file system of `path`, or of the nearest existing folder above it.
fn statistics(path: &Path) -> Result<libc::statvfs> {
    let name = CString::new(nearest_existing(path).as_os_str().as_bytes())
        .with_context(|| format!("`{}` holds a zero byte", path.display()))?;
    let mut stats = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `name` ends in a zero byte and `stats` has the size that statvfs writes.
    if unsafe { libc::statvfs(name.as_ptr(), stats.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error())
            .with_context(|| format!("cannot ask for free space of `{}`", path.display()));
    }
    // SAFETY: statvfs returned 0, so it has filled the whole struct.
    Ok(unsafe { stats.assume_init() })
}

/// `path`, or the nearest existing folder above it.
fn nearest_existing(path: &Path) -> &Path {
    path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."))
}

/// Checks that a folder can be written to, or can be created, and creates nothing.
pub fn require_writable_folder(path: &Path) -> Result<()> {
    writable(nearest_existing(path)).with_context(|| format!("cannot write to folder `{}`", path.display()))
}

fn writable(folder: &Path) -> io::Result<()> {
    if !folder.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    let name = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: `name` ends in a zero byte.
    if unsafe { libc::access(name.as_ptr(), libc::W_OK | libc::X_OK) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_be_written_to_is_named_before_anything_is_written() {
        let folder = tempfile::tempdir().expect("is made");
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("is written");
        require_writable_folder(folder.path()).expect("is there");
        require_writable_folder(&folder.path().join("new/run")).expect("can be made");
        require_writable_folder(Path::new("no-such-folder")).expect("can be made here");
        let error = require_writable_folder(&file.join("run")).expect_err("is below a file");
        assert!(format!("{error:#}").starts_with("cannot write to folder `"), "{error:#}");
        assert!(!folder.path().join("new").exists());
    }

    #[test]
    fn errors_of_a_full_disk_name_its_free_bytes_and_other_errors_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let full = unwritten_message(&path, libc::ENOSPC);
        assert!(full.contains("/a`: 3MiB are needed, ") && full.ends_with(" are free"), "{full}");
        assert!(unwritten_message(&path, libc::EIO).ends_with("/a`"));
        assert!(
            unwritten_message(&path, libc::EFBIG)
                .ends_with("/a`: 3MiB are needed, this file system takes no file of this size")
        );
        assert!(unwritten_message(&path, libc::EDQUOT).ends_with("the quota of this user is used up"));
        assert!(require_space(&path, 1, "a file").is_ok());
        let refused = require_space(&path, u64::MAX, "a file").unwrap_err();
        assert_eq!(refused.class, Class::Disk);
        assert!(refused.message.starts_with("a file: 16777216TiB are needed, "), "{refused}");
    }

    /// The message when a write of 3 MiB to `path` fails with this error number.
    fn unwritten_message(path: &Path, error_number: i32) -> String {
        unwritten(path, Some(3 << 20), io::Error::from_raw_os_error(error_number).into()).to_string()
    }
}
