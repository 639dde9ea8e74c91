//! Folders of files with a manifest of their hashes. The manifest is written with the files, and they are
//! verified against it where they are used.
//!
//! Checkpoints, final models and prepared tokenizers are such folders; this module does not know which is
//! which.

mod manifest;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::error::Problem;
use crate::fs;
use crate::fs::Sha256Sum;

pub use manifest::{Entry, Manifest};

/// The content of one file of a sealed folder.
pub trait Content {
    /// Writes the whole file.
    fn write_to(&self, writer: &mut impl Write) -> Result<()>;
}

impl Content for Vec<u8> {
    fn write_to(&self, writer: &mut impl Write) -> Result<()> {
        Ok(writer.write_all(self)?)
    }
}

/// Writes all files into `folder`, which must not exist yet, and the manifest with `step` last. `files` are
/// contents by their paths relative to `folder`, such as `trainer/state.json`. Everything is synced except
/// for the name of the folder.
pub fn write_sealed<C: Content>(folder: &Path, step: u64, files: &[(String, C)]) -> Result<()> {
    check_names(files)?;
    let folders = folders_of(folder, files);
    folders.iter().try_for_each(|new| fs::create_new_folder(new))?;
    let mut entries = Vec::with_capacity(files.len());
    for (name, content) in files {
        entries.push(write_file(folder, name, content)?);
    }
    folders.iter().try_for_each(|whole| fs::sync_folder(whole))?;
    let manifest = Manifest::new(step, entries).to_bytes();
    fs::create_synced(&folder.join(manifest::FILE_NAME), |writer| Ok(writer.write_all(&manifest)?))
}

/// Verifies the files of `folder` that are `wanted`, by their names relative to it, against the manifest
/// there or the one of the parent folder. If neither names a file, nothing is known about it, and it is
/// accepted.
pub fn verify_sealed(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let name = folder.file_name().map(|name| format!("{}/", name.to_string_lossy()));
    let above = fs::parent_of(folder);
    let (root, manifest, below) = match (Manifest::find(folder)?, name) {
        (Some(manifest), _) => (folder, manifest, String::new()),
        (None, Some(name)) => match Manifest::find(&above)? {
            Some(manifest) => (above.as_path(), manifest, name),
            None => return Ok(()),
        },
        (None, None) => return Ok(()),
    };
    let mut entries =
        manifest.files.iter().filter(|entry| entry.name.strip_prefix(&below).is_some_and(&wanted));
    entries.try_for_each(|entry| entry.verify(root)).map_err(|error| {
        let hint = "restore the file; where it was changed on purpose, remove `manifest.json`";
        match error.downcast::<Problem>() {
            Ok(problem) => problem.hint(hint).into(),
            Err(error) => error,
        }
    })
}

/// Removes the folder `target`, so that a folder with these `files` can take its place. If it contains files
/// that neither its manifest nor `files` names, somebody else put them there: then the folder is renamed, and
/// its new path returned.
pub fn make_way<C>(target: &Path, files: &[(String, C)]) -> Result<Option<PathBuf>> {
    let manifest = Manifest::find(target).ok().flatten();
    let named = manifest.iter().flat_map(|manifest| &manifest.files).map(|entry| entry.name.as_str());
    let new = files.iter().map(|(name, _)| name.as_str());
    let own: BTreeSet<PathBuf> =
        named.chain(new).chain([manifest::FILE_NAME]).map(|name| target.join(name)).collect();
    if !fs::is_link(target) && !has_others(target, &own)? {
        return fs::remove_folder(target).map(|()| None);
    }
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let kept = fs::free_name(&fs::parent_of(target), &format!("{name}-kept-"), "");
    fs::rename(target, &kept)?;
    Ok(Some(kept))
}

/// Returns true if a folder, or one inside it, contains a file that is not in `own`.
fn has_others(folder: &Path, own: &BTreeSet<PathBuf>) -> Result<bool> {
    for path in fs::list(folder)? {
        let is_other = if fs::is_folder(&path) && !fs::is_link(&path) {
            has_others(&path, own)?
        } else {
            !own.contains(&path)
        };
        if is_other {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns an error for names that leave the folder, are the name of the manifest, or occur twice.
fn check_names<C>(files: &[(String, C)]) -> Result<()> {
    let mut names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    for (index, name) in names.iter().enumerate() {
        if !manifest::is_safe_name(name)
            || *name == manifest::FILE_NAME
            || (index > 0 && names[index - 1] == *name)
        {
            return Err(Problem::new(format!(
                "`{name}` cannot be the name of a part of a checkpoint, or comes twice"
            ))
            .into());
        }
    }
    Ok(())
}

/// `folder` and all folders below it that contain files, each before the folders in it.
fn folders_of<C>(folder: &Path, files: &[(String, C)]) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::from([folder.to_path_buf()]);
    for (name, _) in files {
        let path = folder.join(name);
        let above = path.ancestors().skip(1).take_while(|above| above.starts_with(folder));
        folders.extend(above.map(Path::to_path_buf));
    }
    folders
}

fn write_file(folder: &Path, name: &str, content: &impl Content) -> Result<Entry> {
    let mut entry = Entry { name: name.to_string(), bytes: 0, sha256: String::new() };
    fs::create_synced(&folder.join(name), |file| {
        let mut writer = HashingWriter { inner: file, sum: Sha256Sum::default(), bytes: 0 };
        content.write_to(&mut writer)?;
        entry.bytes = writer.bytes;
        entry.sha256 = writer.sum.finish();
        Ok(())
    })?;
    Ok(entry)
}

/// Hashes the bytes that are written, so that the manifest describes what was meant, not what the disk made
/// of it.
struct HashingWriter<W> {
    inner: W,
    sum: Sha256Sum,
    bytes: u64,
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        let count = self.inner.write(buffer)?;
        self.sum.add(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}
