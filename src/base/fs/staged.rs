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
        let (file, temporary) = create_beside(path)?;
        Ok(Self { writer: BufWriter::new(file), temporary, path: path.to_path_buf(), published: false })
    }

    /// Adds to the end.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer.write_all(bytes).map_err(|e| super::space::unwritten(&self.path, None, e.into()))
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
        written.map_err(|e: std::io::Error| super::space::unwritten(&self.path, None, e.into()))?;
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

/// A new file to write, and later to read, beside `path`; what a killed process left under its name is
/// removed first. A link under that name is removed, too, and not followed: another user of a shared folder
/// could have put it there.
pub(super) fn create_beside(path: &Path) -> Result<(File, PathBuf)> {
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
        let plant = |name: &str| {
            let link = folder.path().join(format!(".tmp-{}-{name}", std::process::id()));
            std::os::unix::fs::symlink(&victim, link).unwrap();
        };
        plant("a");
        crate::fs::write_bytes(&folder.path().join("a"), b"new").unwrap();
        plant("b");
        let mut staged = StagedFile::create(&folder.path().join("b")).unwrap();
        staged.write(b"new").unwrap();
        staged.publish(b"").unwrap();
        for (file, content) in [("victim", "untouched"), ("a", "new"), ("b", "new")] {
            assert_eq!(std::fs::read_to_string(folder.path().join(file)).unwrap(), content);
        }
        assert!(std::fs::symlink_metadata(folder.path().join("a")).unwrap().is_file());
    }
}
