//! How much room a file system has left, and a limit on the size of files.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;

use crate::error::Class;
use crate::error::Problem;
use crate::error::is_of_full_disk;
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
        Ok(free) if free < needed_bytes => Err(no_space(path, needed_bytes, Some(free), what)),
        _ => Ok(()),
    }
}

/// The problem of a disk with too little room, or with a fault: `what` says for what.
pub fn no_space(path: &Path, needed_bytes: u64, free_bytes: Option<u64>, what: &str) -> Problem {
    let needed = format_bytes(needed_bytes);
    let free = free_bytes.map_or("an unknown number".to_string(), format_bytes);
    Problem::new(format!("{what}: {needed} are needed, {free} are free"))
        .at(path.display())
        .class(Class::Disk)
}

/// `error` as that of writing `path`, with its size where that is known and what is free, if that is the reason.
pub(super) fn unwritten(path: &Path, size_bytes: Option<u64>, error: anyhow::Error) -> anyhow::Error {
    let name = path.display();
    let Some(free) = free_bytes(path).ok().filter(|_| is_of_full_disk(&error)).map(format_bytes) else {
        return error.context(format!("cannot write `{name}`"));
    };
    let needed = size_bytes.map(|bytes| format!("{} are needed, ", format_bytes(bytes))).unwrap_or_default();
    error.context(format!("cannot write `{name}`: {needed}{free} are free"))
}

/// Bytes that this user may still write where `path` lies; the nearest existing folder above it counts.
pub fn free_bytes(path: &Path) -> Result<u64> {
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
        return Err(std::io::Error::last_os_error())
            .with_context(|| format!("cannot ask for free space of `{}`", path.display()));
    }
    // SAFETY: statvfs returned 0, so it has filled the whole struct.
    let stats = unsafe { stats.assume_init() };
    #[expect(clippy::useless_conversion, reason = "these fields are 32 bits wide on some platforms")]
    Ok(u64::from(stats.f_bavail).saturating_mul(u64::from(stats.f_frsize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_room_is_told_in_bytes_and_any_other_fault_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let of = |number| unwritten(&path, Some(3 << 20), std::io::Error::from_raw_os_error(number).into());
        let full = of(libc::ENOSPC).to_string();
        assert!(full.contains("/a`: 3MiB are needed, ") && full.ends_with(" are free"), "{full}");
        assert!(of(libc::EIO).to_string().ends_with("/a`"));
        assert!(require_space(&path, 1, "a file").is_ok());
        let refused = require_space(&path, u64::MAX, "a file").unwrap_err();
        assert_eq!(refused.class, Class::Disk);
        assert!(refused.message.starts_with("a file: 16777216TiB are needed, "), "{refused}");
    }
}
