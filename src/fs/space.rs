//! How much room a file system has left, and a limit on the size of files.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;

/// Makes a write past the limit of `ulimit -f` an error as on a full disk, instead of a signal that ends the
/// process without a word.
pub fn heed_size_limit() {
    // Whether it came does not matter: the write fails. Where it cannot be caught, all is as before.
    let _ = signal_hook::flag::register(libc::SIGXFSZ, Arc::default());
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
