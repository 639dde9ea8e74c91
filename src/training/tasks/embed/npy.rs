//! Writes a matrix of f32 as NumPy's `.npy`, version 1.0, a row at a time.
//!
//! Format: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.

use std::path::Path;

use anyhow::Result;

use crate::tasks::embed::VectorFile;
use crate::tasks::labelled::TextPair;
use base::fs::StagedFile;

/// Bytes before the numbers; a multiple of 64, so that the numbers are aligned.
const HEADER_BYTES: usize = 128;

/// A file that is being written; it appears under its name only when it is complete.
pub(super) struct NpyFile {
    file: StagedFile,
    rows: u64,
    width: usize,
}

impl NpyFile {
    /// Starts the file `path` for a matrix of `width` columns.
    pub(super) fn create(path: &Path, width: usize) -> Result<Self> {
        let mut file = StagedFile::create(path)?;
        file.write(&[0; HEADER_BYTES])?;
        Ok(Self { file, rows: 0, width })
    }
}

impl VectorFile for NpyFile {
    fn write(&mut self, _: &[TextPair], vectors: &[Vec<f32>]) -> Result<()> {
        assert!(vectors.iter().all(|row| row.len() == self.width), "a row is as wide as its matrix");
        self.rows += vectors.len() as u64;
        let bytes: Vec<u8> = vectors.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
        self.file.write(&bytes)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let header = header(self.rows, self.width);
        self.file.publish(&header)
    }
}

fn header(rows: u64, width: usize) -> Vec<u8> {
    let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {width}), }}");
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    let room = HEADER_BYTES - header.len() - 2;
    header.extend((room as u16).to_le_bytes());
    header.extend(format!("{text:<0$}\n", room - 1).into_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    // Golden bytes from `numpy.save` of numpy 2.4.6, an array of shape (2, 3).
    #[test]
    fn a_file_is_numpys() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let mut file = Box::new(NpyFile::create(&path, 3).unwrap());
        file.write(&[], &[vec![1.0, 2.0, 3.0]]).unwrap();
        file.write(&[], &[vec![0.5, -1.0, 4.0]]).unwrap();
        assert!(!path.exists());
        file.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        let padding = " ".repeat(117 - text.len());
        let header = [b"\x93NUMPY\x01\x00\x76\x00", format!("{text}{padding}\n").as_bytes()].concat();
        assert_eq!((bytes.len(), &bytes[..128]), (128 + 24, &header[..]));
        assert_eq!(bytes[128..136], [0, 0, 128, 63, 0, 0, 0, 64]);
    }
}
