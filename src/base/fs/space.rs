//! How much room a file system has left, and a limit on the size of files.

use std::ffi::CString;
use std::io;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;

use crate::error::Class;
use crate::error::Problem;
use crate::error::is_full;
use crate::fs::limits::FILE_SIZE;
use crate::fs::limits::limit_bytes;
use crate::quantity::format_bytes;

/// Makes a write past the limit of `ulimit -f` an error as on a full disk, instead of a signal that ends the
/// process without a word.
pub fn heed_size_limit() {
    // Whether it came does not matter: the write fails. Where it cannot be caught, all is as before.
    let _ = signal_hook::flag::register(libc::SIGXFSZ, Arc::default());
}

/// Refuses when fewer than `needed_bytes` are free where `path` lies: `what` says what they are for. Where
/// free space cannot be told, writing will tell.
pub fn require_space(path: &Path, needed_bytes: u64, what: &str) -> Result<(), Problem> {
    match free_bytes(path) {
        Ok(free) if free < needed_bytes => {
            let (needed, free) = (format_bytes(needed_bytes), format_bytes(free));
            Err(Problem::new(format!("{what}: {needed} are needed, {free} are free"))
                .at(path.display())
                .class(Class::Disk))
        }
        _ => Ok(()),
    }
}

/// `error` as that of writing `path`, with its size where that is known and what is free, if that is the reason.
pub(super) fn unwritten(path: &Path, size_bytes: Option<u64>, error: anyhow::Error) -> anyhow::Error {
    let name = path.display();
    let Some(limit) = room_left(path, &error) else {
        return error.context(format!("cannot write `{name}`"));
    };
    let needed = size_bytes.map(|bytes| format!("{} are needed, ", format_bytes(bytes))).unwrap_or_default();
    error.context(format!("cannot write `{name}`: {needed}{limit}"))
}

/// Names the limit that caused `error` on the file system of `path`: file size, inodes, quota, or free bytes. `None` if
/// no limit caused it.
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

/// Bytes that this user may still write where `path` lies; the nearest existing folder above it counts.
pub fn free_bytes(path: &Path) -> Result<u64> {
    Ok(free_of(&statistics(path)?))
}

#[expect(clippy::useless_conversion, reason = "these fields are 32 bits wide on some platforms")]
fn free_of(stats: &libc::statvfs) -> u64 {
    u64::from(stats.f_bavail).saturating_mul(u64::from(stats.f_frsize))
}

/// Statistics of the file system of `path`, or of the nearest existing folder above it.
fn statistics(path: &Path) -> Result<libc::statvfs> {
    let mut existing = path.to_path_buf();
    while !existing.exists() && existing.pop() {}
    if existing.as_os_str().is_empty() {
        existing.push(".");
    }
    let name = CString::new(existing.as_os_str().as_bytes())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_room_is_told_in_bytes_and_any_other_fault_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let of = |number| unwritten(&path, Some(3 << 20), io::Error::from_raw_os_error(number).into());
        let full = of(libc::ENOSPC).to_string();
        assert!(full.contains("/a`: 3MiB are needed, ") && full.ends_with(" are free"), "{full}");
        assert!(of(libc::EIO).to_string().ends_with("/a`"));
        assert!(
            of(libc::EFBIG)
                .to_string()
                .ends_with("/a`: 3MiB are needed, this file system takes no file of this size")
        );
        assert!(of(libc::EDQUOT).to_string().ends_with("the quota of this user is used up"));
        assert!(require_space(&path, 1, "a file").is_ok());
        let refused = require_space(&path, u64::MAX, "a file").unwrap_err();
        assert_eq!(refused.class, Class::Disk);
        assert!(refused.message.starts_with("a file: 16777216TiB are needed, "), "{refused}");
    }
}
