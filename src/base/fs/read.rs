//! Opens files to read them: regular ones, and pipes only where a user may hand one over.
//!
//! It decompresses nothing: [`super::open_text`] does.

use std::fs::File;
use std::fs::FileType;
use std::fs::OpenOptions;
use std::io::BufRead;
use std::io::BufReader;
use std::io::IsTerminal;
use std::io::Read;
use std::io::Seek;
use std::io::SeekFrom;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use anyhow::Result;

use crate::error::Problem;

/// The last bytes of a text file, at most so many; what is no UTF-8 there (a character that is cut) is replaced.
pub fn read_tail(path: &Path, most_bytes: u64) -> Result<String> {
    let mut file = open(path)?;
    let cannot_read = || format!("cannot read `{}`", path.display());
    let end = file.seek(SeekFrom::End(0)).with_context(cannot_read)?;
    file.seek(SeekFrom::Start(end.saturating_sub(most_bytes))).with_context(cannot_read)?;
    let mut bytes = Vec::new();
    file.take(most_bytes).read_to_end(&mut bytes).with_context(cannot_read)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Opens a regular file for reading, also through links. A pipe, a socket or a device in its place, on which
/// opening or reading could wait for ever, is an error.
pub fn open(path: &Path) -> Result<File> {
    // A pipe without a writer is opened, too: what it is, is asked of what was opened.
    let file = open_with(path, libc::O_NONBLOCK)?;
    if !kind_of(path, &file)?.is_file() {
        return Err(Problem::new("is no file, but a pipe or a device").at(path.display()).into());
    }
    Ok(file)
}

/// As [`open`], but also a pipe, which is waited for: what a shell hands over as `/dev/stdin` or `<(...)` is
/// one. It can be read only once.
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

/// Whether `path` names a pipe in a folder (`mkfifo`), and not one that a shell hands over (`/dev/stdin`,
/// `<(...)`).
pub fn is_named_pipe(path: &Path) -> bool {
    let real = std::fs::canonicalize(path).and_then(std::fs::metadata);
    real.is_ok_and(|found| found.file_type().is_fifo())
}

/// Refuses what would never end, such as `/dev/zero`. A terminal ends, and `/dev/null` is an empty file.
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

/// Reads a whole file of at most `cap_bytes` bytes; a larger one is an error that names both sizes.
pub fn read_capped(path: &Path, cap_bytes: u64) -> Result<Vec<u8>> {
    read_open_capped(path, open(path)?, cap_bytes)
}

/// As [`read_capped`], of a file that is open; `path` is what errors call it.
pub fn read_open_capped(path: &Path, file: File, cap_bytes: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte over the cap tells a full file from a cut one, also for pipes, whose length is not known.
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

/// Reads a whole UTF-8 file of at most `cap_bytes` bytes; an invalid byte is named by its offset.
pub fn read_text_capped(path: &Path, cap_bytes: u64) -> Result<String> {
    text_of(path, read_capped(path, cap_bytes)?)
}

/// Reads a file that the system makes up, below `/proc` or `/sys`; `None` where there is no such file.
pub fn read_system_text(path: &Path) -> Option<String> {
    const CAP_BYTES: u64 = 4 << 20;
    read_text_capped(path, CAP_BYTES).ok()
}

/// As [`read_text_capped`] for what a user may hand over through a pipe.
pub fn read_text_stream_capped(path: &Path, cap_bytes: u64) -> Result<String> {
    text_of(path, read_open_capped(path, open_stream(path)?, cap_bytes)?)
}

/// Calls `what` with each whole line of a file, its end included; the last one has none while it is being
/// written, and is passed over. Of a line of more than `cap_bytes` only its end comes.
pub fn each_line(path: &Path, cap_bytes: u64, what: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let (mut reader, mut line) = (BufReader::new(open(path)?), Vec::new());
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
    fn only_regular_files_are_opened_and_nothing_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "text").unwrap();
        link(&path("file"), &path("link")).unwrap();
        assert_eq!(read_text_capped(&path("link"), 10).unwrap(), "text");
        assert!(std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        link(&path("pipe"), &path("link-to-pipe")).unwrap();
        link(Path::new("/dev/zero"), &path("link-to-device")).unwrap();
        for name in ["pipe", "link-to-pipe", "link-to-device"] {
            let message = read_capped(&path(name), 10).unwrap_err().to_string();
            assert!(message.ends_with(&format!("{name}: is no file, but a pipe or a device")), "{message}");
        }
        let message = open(folder.path()).unwrap_err().to_string();
        assert!(message.ends_with("is a folder, a file is wanted"), "{message}");
        assert!(open_stream(&path("link-to-device")).is_err());
        let named =
            ["pipe", "link-to-pipe", "file", "link-to-device", "none"].map(|name| is_named_pipe(&path(name)));
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
