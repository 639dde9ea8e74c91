//! Sizes, times and symbolic links of files and folders, without opening files.

use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result};

/// Total size in bytes of all files in a folder and in the folders below it; 0 if the folder is missing. A
/// link counts with its own size, not with that of its target.
pub fn bytes_below(folder: &Path) -> Result<u64> {
    let mut bytes = 0u64;
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for path in super::list(&folder)? {
            let metadata = std::fs::symlink_metadata(&path)
                .with_context(|| format!("cannot read `{}`", path.display()))?;
            if metadata.is_dir() {
                folders.push(path);
            } else {
                bytes = bytes.saturating_add(metadata.len());
            }
        }
    }
    Ok(bytes)
}

/// Time of the last write to a file.
pub fn modified(path: &Path) -> Result<SystemTime> {
    std::fs::metadata(path)
        .and_then(|metadata| metadata.modified())
        .with_context(|| format!("cannot read `{}`", path.display()))
}

/// Returns true if `path` is a symbolic link.
pub fn is_link(path: &Path) -> bool {
    path.is_symlink()
}

/// Sets the modification time of a file to now.
pub fn touch(path: &Path) -> Result<()> {
    super::open(path)?
        .set_modified(SystemTime::now())
        .with_context(|| format!("cannot write `{}`", path.display()))
}

/// Creates the symbolic link `link` to the absolute path of `target`.
pub fn link(target: &Path, link: &Path) -> Result<()> {
    std::os::unix::fs::symlink(std::path::absolute(target)?, link)
        .with_context(|| format!("cannot link `{}` to `{}`", link.display(), target.display()))
}

/// Creates the symbolic link `link`, or atomically replaces it. `target` is relative to the folder of the
/// link.
pub fn relink(target: &Path, link: &Path) -> Result<()> {
    let name = link.file_name().unwrap_or_default().to_string_lossy();
    let temporary = link.with_file_name(format!(".tmp-{}-{name}", std::process::id()));
    super::remove_file(&temporary)?;
    std::os::unix::fs::symlink(target, &temporary)
        .with_context(|| format!("cannot link `{}` to `{}`", link.display(), target.display()))?;
    super::rename(&temporary, link)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::create_new_folder;

    #[test]
    fn files_of_all_depths_are_counted_and_links_lead_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/one"), [0; 100]).unwrap();
        std::fs::write(root.join("a/b/.two"), [0; 23]).unwrap();
        assert_eq!(bytes_below(&root.join("a")).unwrap(), 123);
        assert_eq!(bytes_below(&root.join("missing")).unwrap(), 0);
        link(&root.join("a"), &root.join("a/b/round")).unwrap();
        assert!(bytes_below(&root.join("a")).unwrap() < 123 + 4096);
        assert_eq!(std::fs::read(root.join("a/b/round/one")).unwrap().len(), 100);
    }

    #[test]
    fn a_folder_that_is_there_is_not_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        create_new_folder(&path).unwrap();
        let message = format!("{:#}", create_new_folder(&path).unwrap_err());
        assert!(message.contains("cannot create folder") && message.contains("new"), "{message}");
        assert!(modified(&path).is_ok() && modified(&folder.path().join("none")).is_err());
    }
}
