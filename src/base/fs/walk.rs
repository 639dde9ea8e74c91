//! Lists the files below a folder for readers of text, and counts the entries that are skipped.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::error::Problem;

/// The files in a folder and in all folders below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walk {
    /// Regular files, including those reached through links, sorted by path.
    pub files: Vec<PathBuf>,
    /// Number of files and folders whose name starts with a dot.
    pub hidden: u64,
    /// Number of pipes, sockets and devices.
    pub irregular: u64,
    /// Number of links to folders that are read already: under another name, or because they contain the
    /// link.
    pub repeated: u64,
}

/// Returns true if the name of a file or folder starts with a dot.
pub fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Lists the files in a folder and in all folders below it. Links are followed and each folder is read once,
/// so there are no loops. A broken link is listed as a file, so that opening it reports an error with its
/// name.
pub fn walk(folder: &Path) -> Result<Walk> {
    let mut found = Walk::default();
    let mut folders = vec![folder.to_path_buf()];
    let mut seen = BTreeSet::from([super::canonical(folder)]);
    // Links are visited last, so that a folder that is reachable without a link is read under its own name.
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

/// The files that match a glob pattern, sorted by path; links are followed. Hidden files match only if the
/// pattern has the dot.
pub fn matching(pattern: &str) -> Result<Vec<PathBuf>, Problem> {
    // With `require_literal_leading_dot`, `glob` leaves out hidden files even if the pattern has the dot.
    let wants_hidden = pattern.split('/').any(|part| part.starts_with('.') && part.contains(['*', '?', '[']));
    let options =
        glob::MatchOptions { require_literal_leading_dot: !wants_hidden, ..glob::MatchOptions::default() };
    let found = glob::glob_with(pattern, options);
    let found = found.map_err(|e| Problem::usage(format!("`{pattern}` is not a pattern: {}", e.msg)))?;
    let mut paths = Vec::new();
    for path in found {
        let path =
            path.map_err(|e| Problem::new(format!("cannot be read: {}", e.error())).at(e.path().display()))?;
        // Pipes and devices are read only if they are named explicitly.
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
    fn links_are_followed_once_and_skipped_entries_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("in/b/c")).unwrap();
        std::fs::create_dir_all(root.join("out/d")).unwrap();
        for file in ["in/1.txt", "in/b/2.txt", "in/b/c/3.txt", "in/.4.txt", "out/5.txt", "out/d/6.txt"] {
            std::fs::write(root.join(file), "text").unwrap();
        }
        link(&root.join("out"), &root.join("in/a")).unwrap();
        link(&root.join("out/d"), &root.join("in/b/again")).unwrap();
        link(&root.join("in"), &root.join("out/d/round")).unwrap();
        link(&root.join("in/b"), &root.join("in/a-b")).unwrap();
        link(&root.join("nowhere"), &root.join("in/b/lost.txt")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(root.join("in/pipe")).status().unwrap().success());
        let found = walk(&root.join("in")).unwrap();
        let names: Vec<String> = found
            .files
            .iter()
            .map(|file| file.strip_prefix(root.join("in")).unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(names, ["1.txt", "a/5.txt", "a/d/6.txt", "b/2.txt", "b/c/3.txt", "b/lost.txt"]);
        assert_eq!((found.hidden, found.irregular, found.repeated), (1, 1, 3));
    }
}
