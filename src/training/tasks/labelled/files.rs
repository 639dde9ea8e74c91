//! The files of a set of examples: one file, those in a folder, or those that match a pattern; and their rows
//! as one list in which the file of each row is known.
//!
//! Does not parse rows.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;

use base::error::{Problem, Problems};
use base::fs;
use data::records::RowFormat;

/// Returns the files that a path names, sorted by name: the file itself, all labelled files in a folder, or
/// all files that match a pattern. There is at least one, and all have the same format.
pub fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    // An existing name is meant literally even if it has brackets, and so is a name without wildcards.
    let text = path.to_string_lossy();
    let is_folder = fs::is_folder(path);
    let is_pattern = text.contains(['*', '?', '[']);
    if !is_folder && (fs::exists(path) || !is_pattern) {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut files: Vec<PathBuf> = if is_folder {
        fs::list(path)?.into_iter().filter(|file| is_labelled(file)).collect()
    } else {
        fs::matching(&text)?
    };
    files.sort();
    let Some(first) = files.first() else {
        let what = if is_folder { "holds no labelled file" } else { "matches no file" };
        return Err(Problem::usage(what)
            .at(path.display())
            .hint("of a folder .csv, .tsv, .jsonl, .conll and .parquet are read; for others write a pattern in quotes")
            .into());
    };
    let format = RowFormat::of(first);
    if let Some(other) = files.iter().find(|file| RowFormat::of(file) != format) {
        let message = format!("`{}` and `{}` are of two formats", first.display(), other.display());
        let hint = "say which are meant with a pattern in quotes, such as `'rows/*.csv'`";
        return Err(Problem::usage(message).at(path.display()).hint(hint).into());
    }
    Ok(files)
}

fn is_labelled(file: &Path) -> bool {
    fs::is_regular(file) && !fs::is_hidden(file) && RowFormat::of(file).is_some()
}

/// Returns an error that lists all missing files, if any are missing.
pub fn require<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    let mut missing_files = Vec::new();
    let mut checked = BTreeSet::new();
    for path in paths.into_iter().filter(|path| checked.insert(*path)) {
        if let Some(file) = files_of(path)?.iter().find(|file| !fs::exists(file)) {
            missing_files.push(missing(file));
        }
    }
    if missing_files.is_empty() { Ok(()) } else { Err(Problems(missing_files).into()) }
}

/// The problem of a file that does not exist.
pub fn missing(file: &Path) -> Problem {
    let problem = Problem::usage("there is no such file").at(file.display());
    problem.hint("check the path; it is relative to the current folder")
}

/// The rows of one or several files, in the order of the files.
#[derive(Debug)]
pub(in crate::tasks) struct Rows<T> {
    /// The rows of all files.
    pub(in crate::tasks) all: Vec<T>,
    /// Each file, with the number of rows up to its end.
    files: Vec<(PathBuf, usize)>,
}

impl<T> Rows<T> {
    /// Reads the rows of the files that a path names.
    pub(in crate::tasks) fn read(path: &Path, mut read: impl FnMut(&Path) -> Result<Vec<T>>) -> Result<Self> {
        let mut all = Vec::new();
        let mut files = Vec::new();
        for file in files_of(path)? {
            all.extend(read(&file)?);
            files.push((file, all.len()));
        }
        Ok(Self { all, files })
    }

    /// Calls `of` with the rows of each file, and returns its results for all rows in order.
    pub(in crate::tasks) fn each<I>(&self, of: impl Fn(&Path, &[T]) -> Result<Vec<I>>) -> Result<Vec<I>> {
        let mut found = Vec::with_capacity(self.all.len());
        let mut start = 0;
        for (file, end) in &self.files {
            found.extend(of(file, &self.all[start..*end])?);
            start = *end;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_or_a_pattern_gives_its_files_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["b.csv", "a.csv.gz", "notes.md", ".hidden.csv", "[1].csv", "c.jsonl"] {
            std::fs::write(root.join(name), "").unwrap();
        }
        std::fs::create_dir(root.join("d.csv")).unwrap();
        assert_eq!(names(root, "*.csv*").unwrap(), ["[1].csv", "a.csv.gz", "b.csv"]);
        assert_eq!(names(root, ".h*.csv").unwrap(), [".hidden.csv"], "a pattern with the dot");
        assert_eq!(names(root, "[1].csv").unwrap(), ["[1].csv"], "a name that exists is no pattern");
        assert_eq!(names(root, "none.csv").unwrap(), ["none.csv"], "to be told when it is opened");
        let mixed = names(root, "").unwrap_err();
        assert!(mixed.contains("[1].csv` and `") && mixed.contains("c.jsonl` are of two formats"), "{mixed}");
        std::fs::remove_file(root.join("c.jsonl")).unwrap();
        assert_eq!(names(root, "").unwrap(), ["[1].csv", "a.csv.gz", "b.csv"]);
        assert!(names(root, "x*.csv").unwrap_err().contains("matches no file"));
        std::fs::create_dir(root.join("empty")).unwrap();
        assert!(names(root, "empty").unwrap_err().contains("holds no labelled file"));
        assert!(names(root, "***.csv").unwrap_err().contains("is not a pattern"));
    }

    /// The names of the files for a pattern below `root`.
    fn names(root: &Path, pattern: &str) -> Result<Vec<String>, String> {
        let files = files_of(&root.join(pattern)).map_err(|e| e.to_string())?;
        Ok(files.iter().map(|f| f.file_name().unwrap().to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn all_files_that_are_missing_are_named_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::write(root.join("a.csv"), "").unwrap();
        let paths = ["a.csv", "b.csv", "c.csv", "b.csv"].map(|name| root.join(name));
        let error = require(paths.iter().map(PathBuf::as_path)).unwrap_err();
        assert_eq!(base::error::class_of(&error).exit_code(), 2);
        let text = error.to_string();
        let hint = "check the path; it is relative to the current folder";
        assert_eq!(text.matches("there is no such file").count(), 2, "{text}");
        assert!(text.contains("b.csv: ") && text.contains("c.csv: ") && text.contains(hint), "{text}");
        require([root.join("a.csv").as_path(), root]).unwrap();
    }

    #[test]
    fn rows_know_their_file() {
        let folder = tempfile::tempdir().unwrap();
        for (name, rows) in [("a.csv", "1\n2\n"), ("b.csv", ""), ("c.csv", "3\n")] {
            std::fs::write(folder.path().join(name), rows).unwrap();
        }
        let rows = Rows::read(folder.path(), |path| {
            Ok(std::fs::read_to_string(path)?.lines().map(str::to_string).collect())
        });
        let rows = rows.unwrap();
        let named = rows.each(|path, rows: &[String]| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            Ok(rows.iter().map(|row| format!("{name}{row}")).collect())
        });
        assert_eq!(named.unwrap(), ["a1", "a2", "c3"]);
        assert_eq!(rows.all, ["1", "2", "3"]);
    }
}
