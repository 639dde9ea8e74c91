//! Where vectors go: the end of the file's name says in which format.

use std::path::Path;

use anyhow::Result;

use crate::error::Problem;
use crate::tasks::embed::npy::NpyFile;
use crate::tasks::embed::parquet::ParquetFile;
use crate::tasks::labelled::TextPair;

/// A file under way, which appears under its name when it is whole.
pub trait VectorFile {
    /// Adds a row for each text.
    fn write(&mut self, texts: &[TextPair], vectors: &[Vec<f32>]) -> Result<()>;

    /// Ends the file.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// How vectors are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VectorFormat {
    /// NumPy's matrix: the vectors alone.
    Npy,
    /// A table of texts and vectors.
    Parquet,
}

impl VectorFormat {
    /// Told by the end of the name.
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

    /// Begins a file of vectors of `width` numbers that will be `path`.
    pub fn create(self, path: &Path, width: usize) -> Result<Box<dyn VectorFile>> {
        Ok(match self {
            Self::Npy => Box::new(NpyFile::create(path, width)?),
            Self::Parquet => Box::new(ParquetFile::create(path)?),
        })
    }
}
