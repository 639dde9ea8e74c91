//! A file of vectors in any format.

use anyhow::Result;

use crate::tasks::labelled::TextPair;

/// A file that is being written; it appears under its name only when it is complete.
pub trait VectorFile {
    /// Adds a row for each text.
    fn write(&mut self, texts: &[TextPair], vectors: &[Vec<f32>]) -> Result<()>;

    /// Completes the file.
    fn finish(self: Box<Self>) -> Result<()>;
}
