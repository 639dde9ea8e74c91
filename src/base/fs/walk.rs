//! The files below a folder that a reader of text may want, and what is passed over.

use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;

use crate::error::Problem;

/// The content of a folder and of all folders below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walk {
    /// Regular files, also behind links, sorted by path.
    pub files: Vec<PathBuf>,
    /// Files and folders whose name starts with a dot.
    pub hidden: u64,
    /// Pipes, sockets and devices.
    pub irregular: u64,
    /// Links to folders that are read already, by another name or as one that is above.
    pub repeated: u64,
}

/// Returns true if a name starts with a dot.
pub fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Looks through a folder and all folders below it. Links are followed, each folder is read once: so there
/// are no loops. A broken link is listed with the files, so that opening it fails with its name.
pub fn walk(folder: &Path) -> Result<Walk> {
    let (mut found, mut folders) = (Walk::default(), vec![folder.to_path_buf()]);
    let mut seen = BTreeSet::from([super::canonical(folder)]);
    // Links come last: what is there under its own name is read under that name.
    let mut links = BTreeSet::new();
    loop {
        let folder = match folders.pop().or_else(|| links.pop_first()) {
            Some(link) if link.is_symlink() && link != folder && !seen.insert(super::canonical(&link)) => {
                found.repeated += 1;
                continue;
            }
            Some(folder) => folder,
            None => break,
        };
        for path in super::list(&folder)? {
            if is_hidden(&path) {
                found.hidden += 1;
            } else if !path.is_dir() {
                let is_file = super::is_regular(&path);
                found.irregular += u64::from(!is_file);
                found.files.extend(is_file.then_some(path));
            } else if path.is_symlink() {
                links.insert(path);
            } else if seen.insert(super::canonical(&path)) {
                folders.push(path);
            }
        }
    }
    found.files.sort();
    Ok(found)
}

/// The files that match a pattern, sorted by path, also behind links; hidden ones only where the pattern has
/// the dot.
pub fn matching(pattern: &str) -> Result<Vec<PathBuf>, Problem> {
    // With this option, `glob` leaves them out also where the pattern has the dot.
    let wants_hidden = pattern.split('/').any(|part| part.starts_with('.') && part.contains(['*', '?', '[']));
    let options =
        glob::MatchOptions { require_literal_leading_dot: !wants_hidden, ..glob::MatchOptions::default() };
    let found = glob::glob_with(pattern, options);
    let found = found.map_err(|e| Problem::usage(format!("`{pattern}` is not a pattern: {}", e.msg)))?;
    let mut paths = Vec::new();
    for path in found {
        let path =
            path.map_err(|e| Problem::new(format!("cannot be read: {}", e.error())).at(e.path().display()))?;
        // Pipes and devices are read only if they are named.
        if super::is_regular(&path) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::link;

    #[test]
    fn links_are_followed_once_and_what_is_passed_over_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("in/b/c")).unwrap();
        std::fs::create_dir_all(path("out/d")).unwrap();
        for file in ["in/1.txt", "in/b/2.txt", "in/b/c/3.txt", "in/.4.txt", "out/5.txt", "out/d/6.txt"] {
            std::fs::write(path(file), "text").unwrap();
        }
        link(&path("out"), &path("in/a")).unwrap();
        link(&path("out/d"), &path("in/b/again")).unwrap();
        link(&path("in"), &path("out/d/round")).unwrap();
        link(&path("in/b"), &path("in/a-b")).unwrap();
        link(&path("nowhere"), &path("in/b/lost.txt")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path("in/pipe")).status().unwrap().success());
        let found = walk(&path("in")).unwrap();
        let names: Vec<String> = found
            .files
            .iter()
            .map(|file| file.strip_prefix(path("in")).unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(names, ["1.txt", "a/5.txt", "a/d/6.txt", "b/2.txt", "b/c/3.txt", "b/lost.txt"]);
        assert_eq!((found.hidden, found.irregular, found.repeated), (1, 1, 3));
    }
}
