//! The only place that opens files: every error names the path, every file that matters is written
//! atomically.
//!
//! This module knows no file formats. An atomic write creates a temporary file next to the target, syncs it,
//! renames it to the target and syncs the folder.

use std::fs::{Metadata, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

mod as_utf8;
mod compression;
mod encoding;
mod entries;
mod groups;
mod hash;
mod limits;
mod lock;
mod magic;
mod memory;
mod output;
mod progress;
mod read;
mod scratch;
mod space;
mod staged;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod text;
mod unicode;
mod walk;

pub use compression::{Compression, without_compression};
pub use encoding::TextEncoding;
pub use entries::{bytes_below, is_link, link, modified, relink, touch};
pub use groups::{GroupLimits, group_limits};
pub use hash::{Sha256Sum, content_hash, sample_hash, sha256_of, sha256_of_file, sha256_of_reader};
pub use std::fs::File;

pub use lock::{FolderLock, has_lock, is_locked, lock_identity};
pub use magic::{Foreign, Kind, SNIFFED_BYTES, refuse_mistaken};
pub use memory::{
    available_bytes, available_bytes_below, end_me_first, forget_peak, peak_resident_bytes, system_bytes,
    thread_seconds,
};
pub use output::{Output, require_outputs};
pub use progress::Progress;
pub use read::{
    each_line, is_named_pipe, open, open_stream, read_capped, read_open_capped, read_system_text, read_tail,
    read_text_capped, read_text_stream_capped,
};
pub use scratch::ScratchFile;
pub use space::{free_bytes, heed_size_limit, require_space, require_writable_folder, room_left};
pub use staged::StagedFile;
pub use text::{TextFile, kind_of_file, open_content, open_decompressed, open_text, standard_input};
pub use unicode::Unicode;
pub use walk::{Walk, is_hidden, matching, walk};

/// Writes a file atomically: after a crash, `path` holds either its old content or the whole new content.
///
/// `fill` writes the content. The temporary file is renamed to `path` only after `fill` and the fsync have
/// succeeded.
pub fn write_atomic(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    write_whole(path, None, fill)
}

/// Writes `bytes` to `path` atomically.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> Result<()> {
    write_whole(path, Some(bytes.len() as u64), |w| Ok(w.write_all(bytes)?))
}

fn write_whole(
    path: &Path,
    size_bytes: Option<u64>,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<()>,
) -> Result<()> {
    let (file, temporary) = staged::create_temporary(path)?;
    let written = (|| {
        let mut writer = BufWriter::new(file);
        fill(&mut writer)?;
        writer.flush()?;
        writer.get_ref().sync_all()?;
        std::fs::rename(&temporary, path)?;
        anyhow::Ok(())
    })();
    if let Err(e) = written {
        // The message names the free space, so it is made before the temporary file is removed, which frees
        // some.
        let e = space::unwritten(path, size_bytes, e);
        // A half-written temporary file has no use; a failure to remove it is ignored, since the write has
        // failed anyway.
        let _ = std::fs::remove_file(&temporary);
        return Err(e);
    }
    sync_folder(&parent_of(path))
}

/// Creates a new file, writes it with `fill` and syncs it. An existing file or link at `path` is an error;
/// the link is not followed.
pub fn create_synced(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    create_folder(&parent_of(path))?;
    let written = (|| {
        let mut writer = BufWriter::new(File::create_new(path)?);
        fill(&mut writer)?;
        writer.flush()?;
        Ok(writer.get_ref().sync_all()?)
    })();
    written.map_err(|e| space::unwritten(path, None, e))
}

/// Opens a file for appending and creates it if it is missing. A symbolic link at `path` is an error and is
/// not followed, because another user of a shared folder could have put it there.
pub fn append(path: &Path) -> Result<File> {
    create_folder(&parent_of(path))?;
    OpenOptions::new()
        .create(true)
        .append(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .with_context(|| format!("cannot open `{}` to append", path.display()))
}

/// Host name of this machine; `None` if the system does not report one.
pub fn host_name() -> Option<String> {
    const CAP_BYTES: u64 = 256;
    let name = read_text_capped(Path::new("/proc/sys/kernel/hostname"), CAP_BYTES).ok()?;
    Some(name.trim().to_string()).filter(|name| !name.is_empty())
}

/// Returns true if `path` still names the open `file`, which may have been removed or replaced since it was
/// opened.
pub fn is_still_at(file: &File, path: &Path) -> bool {
    file.metadata().is_ok_and(|open| std::fs::metadata(path).is_ok_and(|named| is_same_file(&open, &named)))
}

/// Returns true if both describe the same file: device and inode are equal.
fn is_same_file(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Creates a folder and its parents.
pub fn create_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).with_context(|| format!("cannot create folder `{}`", path.display()))
}

/// Creates a folder and its missing parents. An existing folder or link at `path` is an error, because
/// another user of a shared folder could have put it there.
pub fn create_new_folder(path: &Path) -> Result<()> {
    create_folder(&parent_of(path))?;
    std::fs::create_dir(path).with_context(|| format!("cannot create folder `{}`", path.display()))
}

/// Syncs a folder, so that the names in it survive a crash.
pub fn sync_folder(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|f| f.sync_all())
        .with_context(|| format!("cannot sync folder `{}`", path.display()))
}

/// Renames a finished temporary folder to its final name and syncs the folder and its parent.
pub fn publish_folder(temporary: &Path, target: &Path) -> Result<()> {
    sync_folder(temporary)?;
    std::fs::rename(temporary, target)
        .with_context(|| format!("cannot rename `{}` to `{}`", temporary.display(), target.display()))?;
    sync_folder(&parent_of(target))
}

/// Renames a file or folder and syncs the folder of the new name.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to)
        .with_context(|| format!("cannot rename `{}` to `{}`", from.display(), to.display()))?;
    sync_folder(&parent_of(to))
}

/// Removes a folder with its content; a missing folder is not an error.
pub fn remove_folder(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove folder `{}`", path.display()))
        }
        _ => Ok(()),
    }
}

/// Removes the temporary files (`.tmp-*`) that atomic writes into this folder left when their process was
/// killed. No other process may be writing to the folder.
pub fn remove_leftovers(folder: &Path) -> Result<()> {
    for path in list(folder)? {
        let is_leftover = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".tmp-"));
        if is_leftover && !path.is_dir() {
            remove_file(&path)?;
        }
    }
    Ok(())
}

/// Removes a file; a missing file is not an error.
pub fn remove_file(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove `{}`", path.display()))
        }
        _ => Ok(()),
    }
}

/// The entries of a folder, sorted by path; empty if the folder is missing.
pub fn list(path: &Path) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.with_context(|| format!("cannot list folder `{}`", path.display()))?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.with_context(|| format!("cannot list folder `{}`", path.display()))?.path());
    }
    paths.sort();
    Ok(paths)
}

/// The files in a folder and in all folders below it, sorted by path, without names that start with a dot.
///
/// Links to files are followed and links to folders are not, so there are no loops.
pub fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for path in list(&folder)? {
            let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            match path.is_dir() {
                _ if is_hidden => {}
                true if !path.is_symlink() => folders.push(path),
                true => {}
                false => files.push(path),
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The canonical path of a file, with links and dots resolved; `path` itself if there is no such file.
pub fn canonical(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Returns true if a file or folder exists at `path`; links are followed.
pub fn exists(path: &Path) -> bool {
    path.exists()
}

/// Returns true if `path` is a folder or a link to one.
pub fn is_folder(path: &Path) -> bool {
    path.is_dir()
}

/// Returns true unless `path` is a folder, a pipe or a device. A missing file or a broken link counts as
/// regular: reading it reports the error.
pub fn is_regular(path: &Path) -> bool {
    path.is_file() || !path.exists()
}

/// The first free path `{start}{number}{end}` in `folder`, with `number` counted from 1.
pub fn free_name(folder: &Path, start: &str, end: &str) -> PathBuf {
    let mut number = 1_u64;
    loop {
        let path = folder.join(format!("{start}{number}{end}"));
        if std::fs::symlink_metadata(&path).is_err() {
            return path;
        }
        number += 1;
    }
}

/// The length of a file in bytes.
pub fn len_bytes(path: &Path) -> Result<u64> {
    Ok(std::fs::metadata(path).with_context(|| format!("cannot read `{}`", path.display()))?.len())
}

/// The folder that contains `path`; `.` for a bare name.
pub fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}
