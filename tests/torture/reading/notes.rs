//! What a child has done so far, in a file of numbers that outlives it.

use std::fs;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};

const NAME: &str = "notes";

/// Written by the child.
pub(super) struct Notes {
    file: File,
    /// Number of the input and of its mutant that is being read, from 1; then for each input how many were
    /// read and how many refused.
    numbers: Vec<u64>,
}

impl Notes {
    pub(super) fn create(folder: &Path, inputs: usize) -> Result<Self> {
        let file = File::create(folder.join(NAME)).with_context(|| folder.display().to_string())?;
        Ok(Self { file, numbers: vec![0; 2 + 2 * inputs] })
    }

    /// Writes down which one is read now, and what came of those before.
    pub(super) fn begin(&mut self, input: usize, case: u64) -> Result<()> {
        (self.numbers[0], self.numbers[1]) = (input as u64 + 1, case);
        self.write()
    }

    /// Counts what was read now; it is written down with the next one.
    pub(super) fn ended(&mut self, input: usize, is_refused: bool) {
        self.numbers[2 + 2 * input + usize::from(is_refused)] += 1;
    }

    fn write(&mut self) -> Result<()> {
        let bytes: Vec<u8> = self.numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        Ok(self.file.write_all_at(&bytes, 0)?)
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        // Where the last numbers cannot be written, those before stand there.
        let _ = self.write();
    }
}

/// As the driver reads them.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Noted(Vec<u64>);

impl Noted {
    /// The notes of the child in `folder`; nothing before it has begun.
    pub(super) fn read(folder: &Path) -> Self {
        let bytes = fs::read(folder.join(NAME)).unwrap_or_default();
        Self(bytes.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number)).collect())
    }

    /// The input that is being read, and the number of its mutant.
    pub(super) fn under_way(&self) -> Option<(usize, u64)> {
        let (&input, &case) = (self.0.first()?, self.0.get(1)?);
        Some((usize::try_from(input).ok()?.checked_sub(1)?, case))
    }

    /// How many of each input were read, and how many refused.
    pub(super) fn counts(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.get(2..).unwrap_or_default().as_chunks::<2>().0.iter().map(|[read, refused]| (*read, *refused))
    }
}
