//! A file that is written piece by piece and appears under its name only when it is complete.
//!
//! Content that is available at once can be written with [`super::write_atomic`].

use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A temporary file next to its target. Dropping it without [`Self::publish`] removes it.
#[derive(Debug)]
pub struct StagedFile {
    writer: BufWriter<File>,
    temporary: PathBuf,
    path: PathBuf,
    published: bool,
}

impl StagedFile {
    /// Creates an empty temporary file that [`Self::publish`] renames to `path`.
    pub fn create(path: &Path) -> Result<Self> {
        let (file, temporary) = create_temporary(path)?;
        Ok(Self { writer: BufWriter::new(file), temporary, path: path.to_path_buf(), published: false })
    }

    /// Appends bytes to the end.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer.write_all(bytes).map_err(|e| super::space::unwritten(&self.path, None, e.into()))
    }

    /// Overwrites the first bytes with `start`, syncs the file and renames it to its target.
    pub fn publish(mut self, start: &[u8]) -> Result<()> {
        let written = (|| {
            self.writer.rewind()?;
            self.writer.write_all(start)?;
            self.writer.flush()?;
            self.writer.get_ref().sync_all()?;
            std::fs::rename(&self.temporary, &self.path)
        })();
        written.map_err(|e: std::io::Error| super::space::unwritten(&self.path, None, e.into()))?;
        self.published = true;
        super::sync_folder(&super::parent_of(&self.path))
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.published {
            // A half-written file has no use; a failure to remove it is ignored.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// Creates a temporary file next to `path`, open for writing and reading, and returns it with its own path. A
/// file or link that a killed process left under the temporary name is removed first. A link is not followed:
/// another user of a shared folder could have put it there.
pub(super) fn create_temporary(path: &Path) -> Result<(File, PathBuf)> {
    let folder = super::parent_of(path);
    super::create_folder(&folder)?;
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let temporary = folder.join(format!(".tmp-{}-{name}", std::process::id()));
    super::remove_file(&temporary)?;
    let file =
        File::create_new(&temporary).with_context(|| format!("cannot create `{}`", temporary.display()))?;
    Ok((file, temporary))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_under_the_name_of_a_temporary_file_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "untouched").unwrap();
        plant_link(folder.path(), "a", &victim);
        crate::fs::write_bytes(&folder.path().join("a"), b"new").unwrap();
        plant_link(folder.path(), "b", &victim);
        let mut staged = StagedFile::create(&folder.path().join("b")).unwrap();
        staged.write(b"new").unwrap();
        staged.publish(b"").unwrap();
        for (file, content) in [("victim", "untouched"), ("a", "new"), ("b", "new")] {
            assert_eq!(std::fs::read_to_string(folder.path().join(file)).unwrap(), content);
        }
        assert!(std::fs::symlink_metadata(folder.path().join("a")).unwrap().is_file());
    }

    /// Puts a link to `victim` under the name of the temporary file for `name`.
    fn plant_link(folder: &Path, name: &str, victim: &Path) {
        let link = folder.join(format!(".tmp-{}-{name}", std::process::id()));
        std::os::unix::fs::symlink(victim, link).unwrap();
    }
}
