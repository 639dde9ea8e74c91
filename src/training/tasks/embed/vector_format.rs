//! The formats of files of vectors; the extension of the file's name selects one.

use std::path::Path;

use anyhow::Result;

use crate::tasks::embed::npy::NpyFile;
use crate::tasks::embed::parquet::ParquetFile;
use crate::tasks::embed::vector_file::VectorFile;
use base::error::Problem;

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
