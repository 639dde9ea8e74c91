//! Folders of files with a manifest of their hashes. The manifest is written with the files, and they are
//! verified against it where they are used.
//!
//! Checkpoints, final models and prepared tokenizers are such folders; this module does not know which is
//! which.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::checkpoint::manifest;
use crate::checkpoint::manifest::{Entry, Manifest};
use crate::checkpoint::part::{Part, Snapshot};
use crate::checkpoint::tensor_file::write_tensors;
use crate::error::Problem;
use crate::fs;
use crate::fs::Sha256Sum;

/// Writes all parts into `folder`, which must not exist yet, and the manifest last. Everything is synced
/// except for the name of the folder.
pub fn write_sealed(folder: &Path, snapshot: &Snapshot) -> Result<()> {
    snapshot.check_names()?;
    let folders = folders_of(folder, snapshot);
    folders.iter().try_for_each(|new| fs::create_new_folder(new))?;
    let mut entries = Vec::with_capacity(snapshot.parts.len());
    for (name, part) in &snapshot.parts {
        entries.push(write_part(folder, name, part)?);
    }
    folders.iter().try_for_each(|whole| fs::sync_folder(whole))?;
    let manifest = Manifest::new(snapshot.step, entries).to_bytes();
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

/// Removes the folder `target`, so that a folder with the parts of `snapshot` can take its place. If it
/// contains files that neither its manifest nor the snapshot names, somebody else put them there: then the
/// folder is renamed, and its new path returned.
pub fn make_way(target: &Path, snapshot: &Snapshot) -> Result<Option<PathBuf>> {
    let manifest = Manifest::find(target).ok().flatten();
    let named = manifest.iter().flat_map(|manifest| &manifest.files).map(|entry| entry.name.as_str());
    let parts = snapshot.parts.iter().map(|(name, _)| name.as_str());
    let own: BTreeSet<PathBuf> =
        named.chain(parts).chain([manifest::FILE_NAME]).map(|name| target.join(name)).collect();
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

/// `folder` and all folders below it that contain parts, each before the folders in it.
fn folders_of(folder: &Path, snapshot: &Snapshot) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::from([folder.to_path_buf()]);
    for (name, _) in &snapshot.parts {
        let path = folder.join(name);
        let above = path.ancestors().skip(1).take_while(|above| above.starts_with(folder));
        folders.extend(above.map(Path::to_path_buf));
    }
    folders
}

fn write_part(folder: &Path, name: &str, part: &Part) -> Result<Entry> {
    let mut entry = Entry { name: name.to_string(), bytes: 0, sha256: String::new() };
    fs::create_synced(&folder.join(name), |file| {
        let mut writer = HashingWriter { inner: file, sum: Sha256Sum::default(), bytes: 0 };
        match part {
            Part::Tensors(tensors) => write_tensors(&mut writer, tensors)?,
            // Serialised to memory first, because serde_json would hide the error of a full disk.
            Part::Json(value) => writer.write_all(&serde_json::to_vec_pretty(value)?)?,
            Part::Bytes(bytes) => writer.write_all(bytes)?,
        }
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
