//! Output files of vectors, in the format that the extension of the file's name selects.

use std::path::Path;

use anyhow::Result;

use crate::tasks::embed::npy::NpyFile;
use crate::tasks::embed::parquet::ParquetFile;
use crate::tasks::labelled::TextPair;
use base::error::Problem;

/// A file that is being written; it appears under its name only when it is complete.
pub trait VectorFile {
    /// Adds a row for each text.
    fn write(&mut self, texts: &[TextPair], vectors: &[Vec<f32>]) -> Result<()>;

    /// Completes the file.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// Format of a file of vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VectorFormat {
    /// NumPy matrix with the vectors alone.
    Npy,
    /// Table of texts with their vectors.
    Parquet,
}

impl VectorFormat {
    /// Selects the format by the extension of the name.
    pub fn of(path: &Path) -> Result<Self, Problem> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("npy") => Ok(Self::Npy),
            Some("parquet") => Ok(Self::Parquet),
            _ => Err(Problem::usage(
                "has a name that ends neither in `.npy` nor in `.parquet`, which can be written",
            )
            .at(path.display())),
        }
    }

    /// Starts the file `path` for vectors of `width` numbers.
    pub fn create(self, path: &Path, width: usize) -> Result<Box<dyn VectorFile>> {
        Ok(match self {
            Self::Npy => Box::new(NpyFile::create(path, width)?),
            Self::Parquet => Box::new(ParquetFile::create(path)?),
        })
    }
}
