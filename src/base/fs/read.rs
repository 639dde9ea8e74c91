//! Opens files for reading: regular files, and pipes only where a user may pass one.
//!
//! This module decompresses nothing; [`super::open_text`] does.

use std::fs::{File, FileType, OpenOptions};
use std::io::{BufRead, BufReader, IsTerminal, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result};

use crate::error::Problem;

/// The end of a text file, at most `most_bytes` bytes. Invalid UTF-8 (a character that is cut) is replaced.
pub fn read_tail(path: &Path, most_bytes: u64) -> Result<String> {
    let read = last_bytes(open(path)?, most_bytes);
    let bytes = read.with_context(|| format!("cannot read `{}`", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn last_bytes(mut file: File, most_bytes: u64) -> std::io::Result<Vec<u8>> {
    let end = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(end.saturating_sub(most_bytes)))?;
    let mut bytes = Vec::new();
    file.take(most_bytes).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a regular file for reading; links are followed. A pipe, a socket or a device is an error, because
/// opening or reading it could block forever.
pub fn open(path: &Path) -> Result<File> {
    // With `O_NONBLOCK`, opening a pipe without a writer does not block. The kind of the open file is checked
    // next.
    let file = open_with(path, libc::O_NONBLOCK)?;
    if !kind_of(path, &file)?.is_file() {
        return Err(Problem::new("is no file, but a pipe or a device").at(path.display()).into());
    }
    Ok(file)
}

/// Opens a file like [`open`], but accepts a pipe, too, and waits for its writer: a shell passes pipes as
/// `/dev/stdin` or `<(...)`. A pipe can be read only once.
pub fn open_stream(path: &Path) -> Result<File> {
    let file = open_with(path, 0)?;
    refuse_device(path, &file)?;
    Ok(file)
}

fn open_with(path: &Path, flags: i32) -> Result<File> {
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.with_context(|| format!("cannot open `{}`", path.display()))?;
    if kind_of(path, &file)?.is_dir() {
        return Err(Problem::new("is a folder, a file is wanted").at(path.display()).into());
    }
    Ok(file)
}

/// Returns true if `path` names a pipe in a folder (`mkfifo`), and not one that a shell passes (`/dev/stdin`,
/// `<(...)`).
pub fn is_named_pipe(path: &Path) -> bool {
    let real = std::fs::canonicalize(path).and_then(std::fs::metadata);
    real.is_ok_and(|found| found.file_type().is_fifo())
}

/// Refuses a device that never ends, such as `/dev/zero`. A terminal ends, and `/dev/null` is an empty file.
fn refuse_device(path: &Path, file: &File) -> Result<()> {
    let kind = kind_of(path, file)?;
    let may_end = file.is_terminal() || super::canonical(path) == Path::new("/dev/null");
    if (kind.is_char_device() && !may_end) || kind.is_block_device() {
        return Err(Problem::new("is a device, a file is wanted").at(path.display()).into());
    }
    Ok(())
}

fn kind_of(path: &Path, file: &File) -> Result<FileType> {
    let metadata = file.metadata().with_context(|| format!("cannot read `{}`", path.display()))?;
    Ok(metadata.file_type())
}

/// Reads a whole file of at most `cap_bytes` bytes; a larger file is an error that names the cap.
pub fn read_capped(path: &Path, cap_bytes: u64) -> Result<Vec<u8>> {
    read_open_capped(path, open(path)?, cap_bytes)
}

/// Same as [`read_capped`] for a file that is open already; errors name it `path`.
pub fn read_open_capped(path: &Path, file: File, cap_bytes: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than the cap is read, to distinguish a larger file from one of just that size: the length
    // of a pipe is not known.
    file.take(cap_bytes + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read `{}`", path.display()))?;
    if bytes.len() as u64 > cap_bytes {
        return Err(Problem::new(format!(
            "is larger than {cap_bytes} bytes, the most that is read of such a file"
        ))
        .at(path.display())
        .into());
    }
    Ok(bytes)
}

/// Reads a whole UTF-8 file of at most `cap_bytes` bytes. The error for invalid UTF-8 names the offset of the
/// first invalid byte.
pub fn read_text_capped(path: &Path, cap_bytes: u64) -> Result<String> {
    text_of(path, read_capped(path, cap_bytes)?)
}

/// Reads a file that the kernel generates, in `/proc` or `/sys`; `None` if it cannot be read.
pub fn read_system_text(path: &Path) -> Option<String> {
    const CAP_BYTES: u64 = 4 << 20;
    read_text_capped(path, CAP_BYTES).ok()
}

/// Same as [`read_text_capped`], for a path that may be a pipe that the user passes.
pub fn read_text_stream_capped(path: &Path, cap_bytes: u64) -> Result<String> {
    text_of(path, read_open_capped(path, open_stream(path)?, cap_bytes)?)
}

/// Calls `what` with each complete line of a file, including its line break. A last line without a line break
/// is skipped, because it may still be being written. Of a line longer than `cap_bytes`, only the last piece
/// is passed.
pub fn each_line(path: &Path, cap_bytes: u64, what: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut reader = BufReader::new(open(path)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader.by_ref().take(cap_bytes).read_until(b'\n', &mut line);
        if read.with_context(|| format!("cannot read `{}`", path.display()))? == 0 {
            return Ok(());
        }
        if line.ends_with(b"\n") {
            what(&line)?;
        }
    }
}

fn text_of(path: &Path, bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|e| {
        Problem::new(format!("is not UTF-8 text (byte {})", e.utf8_error().valid_up_to()))
            .at(path.display())
            .hint("is it a binary or a compressed file?")
            .into()
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::fs::link;

    #[test]
    fn only_regular_files_are_opened_and_opening_never_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::write(root.join("file"), "text").unwrap();
        link(&root.join("file"), &root.join("link")).unwrap();
        assert_eq!(read_text_capped(&root.join("link"), 10).unwrap(), "text");
        assert!(std::process::Command::new("mkfifo").arg(root.join("pipe")).status().unwrap().success());
        link(&root.join("pipe"), &root.join("link-to-pipe")).unwrap();
        link(Path::new("/dev/zero"), &root.join("link-to-device")).unwrap();
        for name in ["pipe", "link-to-pipe", "link-to-device"] {
            let message = read_capped(&root.join(name), 10).unwrap_err().to_string();
            assert!(message.ends_with(&format!("{name}: is no file, but a pipe or a device")), "{message}");
        }
        let message = open(root).unwrap_err().to_string();
        assert!(message.ends_with("is a folder, a file is wanted"), "{message}");
        assert!(open_stream(&root.join("link-to-device")).is_err());
        let named = ["pipe", "link-to-pipe", "file", "link-to-device", "none"]
            .map(|name| is_named_pipe(&root.join(name)));
        assert_eq!(named, [true, true, false, false, false]);
    }

    #[test]
    fn a_pipe_is_read_where_a_user_may_hand_one_over() {
        let (reader, mut write) = std::io::pipe().unwrap();
        write.write_all(b"text").unwrap();
        drop(write);
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        if Path::new(&path).exists() {
            assert!(!is_named_pipe(Path::new(&path)));
            assert_eq!(read_text_stream_capped(Path::new(&path), 10).unwrap(), "text");
        }
    }
}
