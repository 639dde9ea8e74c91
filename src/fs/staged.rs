//! A file that is written piece by piece and appears under its name only when it is whole.
//!
//! For content that is at hand at once there is [`super::write_atomic`].

use std::fs::File;
use std::io::BufWriter;
use std::io::Seek;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;

/// A temporary file beside its target; dropping it without [`Self::publish`] removes it.
#[derive(Debug)]
pub struct StagedFile {
    writer: BufWriter<File>,
    temporary: PathBuf,
    path: PathBuf,
    published: bool,
}

impl StagedFile {
    /// Starts an empty file that will be `path`.
    pub fn create(path: &Path) -> Result<Self> {
        let folder = super::parent_of(path);
        super::create_folder(&folder)?;
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let temporary = folder.join(format!(".tmp-{}-{name}", std::process::id()));
        let file =
            File::create(&temporary).with_context(|| format!("cannot create `{}`", temporary.display()))?;
        Ok(Self { writer: BufWriter::new(file), temporary, path: path.to_path_buf(), published: false })
    }

    /// Adds to the end.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer.write_all(bytes).with_context(|| format!("cannot write `{}`", self.path.display()))
    }

    /// Writes `start` over the first bytes, makes all of it durable, and gives it its name.
    pub fn publish(mut self, start: &[u8]) -> Result<()> {
        let written = (|| {
            self.writer.rewind()?;
            self.writer.write_all(start)?;
            self.writer.flush()?;
            self.writer.get_ref().sync_all()?;
            std::fs::rename(&self.temporary, &self.path)
        })();
        written.with_context(|| format!("cannot write `{}`", self.path.display()))?;
        self.published = true;
        super::sync_folder(&super::parent_of(&self.path))
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.published {
            // Half a file is of no use to anyone; failing to remove it changes nothing.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}
