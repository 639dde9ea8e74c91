//! Parts of a file that are read like files: members of an archive, contents of records.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::records::lines::BUFFER_BYTES;
use base::fs::TextFile;

/// A file that is read in parts, one after another.
pub(super) struct Whole {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    reader: BufReader<TextFile>,
    /// Unread bytes of the last part.
    left: u64,
}

/// Reader of the last part.
struct Window(Arc<Mutex<Shared>>);

impl Whole {
    pub(super) fn new(text: TextFile) -> Self {
        let reader = BufReader::with_capacity(BUFFER_BYTES, text);
        Self { shared: Arc::new(Mutex::new(Shared { reader, left: 0 })) }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of bytes of the file, as stored on disk, that have been read so far.
    pub(super) fn position_bytes(&self) -> u64 {
        self.lock().reader.get_ref().position_bytes()
    }

    /// Fills `buffer`, or as much of it as the file has left; returns the number of bytes read.
    pub(super) fn fill(&self, buffer: &mut [u8]) -> Result<usize> {
        let mut shared = self.lock();
        let mut filled = 0;
        while filled < buffer.len() {
            match shared.reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(filled)
    }

    /// Reads a line with its `\n`, at most `bytes_max` bytes; returns an empty line at the end of the file.
    pub(super) fn line(&self, bytes_max: u64) -> Result<Vec<u8>> {
        let mut line = Vec::new();
        self.lock().reader.by_ref().take(bytes_max).read_until(b'\n', &mut line)?;
        Ok(line)
    }

    /// Returns the next `bytes` bytes as a file. If the archive ends before that, reading the file fails.
    pub(super) fn window(&self, bytes: u64) -> TextFile {
        let mut shared = self.lock();
        shared.left = bytes;
        TextFile::of_part(shared.reader.get_ref(), Box::new(Window(Arc::clone(&self.shared))))
    }

    /// Skips the unread bytes of the part, and `more` bytes after it.
    pub(super) fn skip_rest(&self, more: u64) -> Result<()> {
        let mut shared = self.lock();
        shared.left = shared.left.checked_add(more).ok_or(ErrorKind::InvalidData)?;
        while shared.left > 0 {
            let count = (shared.reader.fill_buf()?.len() as u64).min(shared.left);
            if count == 0 {
                return Err(cut_off(shared.left));
            }
            shared.reader.consume(count as usize);
            shared.left -= count;
        }
        Ok(())
    }
}

impl Read for Window {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let most = shared.left.min(buffer.len() as u64) as usize;
        let count = shared.reader.read(&mut buffer[..most])?;
        if count == 0 && most > 0 {
            return Err(cut_off(shared.left));
        }
        shared.left -= count as u64;
        Ok(count)
    }
}

fn cut_off(missing: u64) -> Error {
    Error::new(ErrorKind::UnexpectedEof, format!("the archive is cut off: {missing} bytes are missing"))
}
