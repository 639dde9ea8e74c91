//! The files of a set of examples: one, those of a folder, or those that match a pattern; and their rows as
//! one list that still knows which file each is of.
//!
//! It reads no row itself.

use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;

use crate::error::Problem;
use crate::error::Problems;
use crate::fs;
use crate::tasks::labelled::rows::RowFormat;

/// The files that a path names, by name: itself, all labelled files in it where it is a folder, or all that
/// match it. At least one, and all of one format.
pub fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    // A name that exists is meant literally, whatever brackets it contains; so is one that is no pattern.
    let text = path.to_string_lossy();
    let (is_folder, is_pattern) = (fs::is_folder(path), text.contains(['*', '?', '[']));
    if !is_folder && (fs::exists(path) || !is_pattern) {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut files: Vec<PathBuf> = if is_folder {
        let is_labelled =
            |file: &PathBuf| fs::is_regular(file) && !fs::is_hidden(file) && RowFormat::of(file).is_some();
        fs::list(path)?.into_iter().filter(is_labelled).collect()
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

/// An error that names all of the files that are missing, if any are.
pub fn require<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    let mut missing_files = Vec::new();
    let mut told = BTreeSet::new();
    for path in paths.into_iter().filter(|path| told.insert(*path)) {
        if let Some(file) = files_of(path)?.iter().find(|file| !fs::exists(file)) {
            missing_files.push(missing(file));
        }
    }
    if missing_files.is_empty() { Ok(()) } else { Err(Problems(missing_files).into()) }
}

/// The problem of a file that is not there.
pub fn missing(file: &Path) -> Problem {
    let problem = Problem::usage("there is no such file").at(file.display());
    problem.hint("check the path; it is relative to the current folder")
}

/// The rows of one file or of several, in the order of the files.
#[derive(Debug)]
pub(in crate::tasks) struct Rows<T> {
    /// All of them.
    pub(in crate::tasks) all: Vec<T>,
    /// Each file, and how many rows there are up to its end.
    files: Vec<(PathBuf, usize)>,
}

impl<T> Rows<T> {
    /// Those of the files that a path names.
    pub(in crate::tasks) fn read(path: &Path, mut read: impl FnMut(&Path) -> Result<Vec<T>>) -> Result<Self> {
        let (mut all, mut files) = (Vec::new(), Vec::new());
        for file in files_of(path)? {
            all.extend(read(&file)?);
            files.push((file, all.len()));
        }
        Ok(Self { all, files })
    }

    /// Something of each row, made of the rows of one file after the other.
    pub(in crate::tasks) fn each<I>(&self, of: impl Fn(&Path, &[T]) -> Result<Vec<I>>) -> Result<Vec<I>> {
        let (mut found, mut start) = (Vec::with_capacity(self.all.len()), 0);
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
    fn a_folder_or_a_pattern_is_its_files_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["b.csv", "a.csv.gz", "notes.md", ".hidden.csv", "[1].csv", "c.jsonl"] {
            std::fs::write(path(name), "").unwrap();
        }
        std::fs::create_dir(path("d.csv")).unwrap();
        let names = |pattern: &str| -> Result<Vec<String>, String> {
            let files = files_of(&path(pattern)).map_err(|e| e.to_string())?;
            Ok(files.iter().map(|f| f.file_name().unwrap().to_string_lossy().into_owned()).collect())
        };
        assert_eq!(names("*.csv*").unwrap(), ["[1].csv", "a.csv.gz", "b.csv"]);
        assert_eq!(names(".h*.csv").unwrap(), [".hidden.csv"], "a pattern with the dot");
        assert_eq!(names("[1].csv").unwrap(), ["[1].csv"], "a name that exists is no pattern");
        assert_eq!(names("none.csv").unwrap(), ["none.csv"], "to be told when it is opened");
        let mixed = names("").unwrap_err();
        assert!(mixed.contains("[1].csv` and `") && mixed.contains("c.jsonl` are of two formats"), "{mixed}");
        std::fs::remove_file(path("c.jsonl")).unwrap();
        assert_eq!(names("").unwrap(), ["[1].csv", "a.csv.gz", "b.csv"]);
        assert!(names("x*.csv").unwrap_err().contains("matches no file"));
        std::fs::create_dir(path("empty")).unwrap();
        assert!(names("empty").unwrap_err().contains("holds no labelled file"));
        assert!(names("***.csv").unwrap_err().contains("is not a pattern"));
    }

    #[test]
    fn all_files_that_are_missing_are_named_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a.csv"), "").unwrap();
        let paths = ["a.csv", "b.csv", "c.csv", "b.csv"].map(path);
        let error = require(paths.iter().map(PathBuf::as_path)).unwrap_err();
        assert_eq!(crate::error::class_of(&error).exit_code(), 2);
        let (text, hint) = (error.to_string(), "check the path; it is relative to the current folder");
        assert_eq!(text.matches("there is no such file").count(), 2, "{text}");
        assert!(text.contains("b.csv: ") && text.contains("c.csv: ") && text.contains(hint), "{text}");
        require([path("a.csv").as_path(), folder.path()]).unwrap();
    }

    #[test]
    fn rows_know_their_file() {
        let folder = tempfile::tempdir().unwrap();
        for (name, rows) in [("a.csv", "1\n2\n"), ("b.csv", ""), ("c.csv", "3\n")] {
            std::fs::write(folder.path().join(name), rows).unwrap();
        }
        let read = |path: &Path| Ok(std::fs::read_to_string(path)?.lines().map(str::to_string).collect());
        let rows = Rows::read(folder.path(), read).unwrap();
        let named = rows.each(|path, rows: &[String]| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            Ok(rows.iter().map(|row| format!("{name}{row}")).collect())
        });
        assert_eq!(named.unwrap(), ["a1", "a2", "c3"]);
        assert_eq!(rows.all, ["1", "2", "3"]);
    }
}
