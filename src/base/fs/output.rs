//! The rule for files that the user asks a command to write: they replace neither a file that the command reads,
//! nor one that it did not write.
//!
//! All outputs of all commands follow it. This module writes nothing: [`super::write_atomic`] does.

use std::fs::Metadata;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;

use crate::error::Problem;

/// Bytes at the start of a file that show which program wrote it.
const HEAD_BYTES: u64 = 4 << 10;

/// A file that a command is about to write.
#[derive(Clone, Copy)]
pub struct Output<'a> {
    /// The flag or key that names it, as errors call it.
    pub named_by: &'a str,
    /// Its path.
    pub path: &'a Path,
    /// Tells by its first bytes a file that the same command wrote earlier, which may be replaced.
    pub is_own: fn(&[u8]) -> bool,
}

impl<'a> Output<'a> {
    /// A file of which an earlier one cannot be told from any other: whatever exists is kept.
    pub fn new(named_by: &'a str, path: &'a Path) -> Self {
        Self { named_by, path, is_own: |_| false }
    }
}

/// Refuses an output that is one of the `inputs` (files, or folders of which all files are read), by whatever
/// name or link; one that exists and is no regular file; two outputs in one place; and, unless `overwrite`,
/// one that exists and that the command did not write.
pub fn require_outputs(outputs: &[Output<'_>], inputs: &[&Path], overwrite: bool) -> Result<()> {
    for (index, output) in outputs.iter().enumerate() {
        if let Some(other) =
            outputs[..index].iter().find(|other| place_of(other.path) == place_of(output.path))
        {
            return Err(Problem::usage(format!("is also the file of `{}`", other.named_by))
                .at(format!("{} {}", output.named_by, output.path.display()))
                .hint("give each its own file")
                .into());
        }
        require_output(output, inputs, overwrite)?;
    }
    Ok(())
}

fn require_output(output: &Output<'_>, inputs: &[&Path], overwrite: bool) -> Result<()> {
    let refuse = |message: String, hint: &str| {
        let place = format!("{} {}", output.named_by, output.path.display());
        Err(Problem::usage(message).at(place).hint(hint).into())
    };
    let folder = super::parent_of(output.path);
    if folder.exists() && !folder.is_dir() {
        return refuse(format!("`{}` is no folder", folder.display()), "name a file in a folder");
    }
    // A link that leads nowhere is still a name that someone else gave.
    let Ok(link) = std::fs::symlink_metadata(output.path) else { return Ok(()) };
    let found = std::fs::metadata(output.path).unwrap_or(link);
    if found.is_dir() {
        return refuse("is a folder, a file is wanted".to_string(), "name a file in it");
    }
    if !found.is_file() && !found.is_symlink() {
        let hint = "name a file; what goes to standard output can be sent anywhere";
        return refuse("is a device or a pipe, and a file would take its place".to_string(), hint);
    }
    if (output.is_own)(&head(output.path)) {
        return Ok(());
    }
    if let Some(input) = inputs.iter().find(|input| holds(input, &found)) {
        let message = if input.is_dir() {
            format!("is a file of `{}`, which this command reads", input.display())
        } else {
            format!("is `{}`, which this command reads", input.display())
        };
        return refuse(message, "name another file: an output never replaces an input");
    }
    if overwrite {
        return Ok(());
    }
    refuse("exists already, and is not replaced".to_string(), "name another file, or give `--overwrite`")
}

/// Returns true if `input` is this file, or a folder that contains it.
fn holds(input: &Path, file: &Metadata) -> bool {
    let is_it = |found: &Metadata| (found.dev(), found.ino()) == (file.dev(), file.ino());
    let Ok(found) = std::fs::metadata(input) else { return false };
    if !found.is_dir() {
        return is_it(&found);
    }
    let files = super::files_below(input).unwrap_or_default();
    files.iter().any(|path| std::fs::metadata(path).is_ok_and(|found| is_it(&found)))
}

/// A name for a path that others of the same file have as well, also where there is no file yet.
fn place_of(path: &Path) -> PathBuf {
    let folder = super::canonical(&super::parent_of(path));
    super::canonical(&folder.join(path.file_name().unwrap_or_default()))
}

/// The first bytes of a file; none where it cannot be read.
fn head(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = super::open(path).and_then(|file| Ok(file.take(HEAD_BYTES).read_to_end(&mut bytes)?));
    if read.is_err() {
        bytes.clear();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message for an output of this name, with `overwrite`; none where it may be written.
    fn refused(folder: &Path, name: &str, inputs: &[&str], overwrite: bool) -> Option<String> {
        let (path, inputs) = (folder.join(name), inputs.iter().map(|name| folder.join(name)));
        let inputs: Vec<PathBuf> = inputs.collect();
        let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
        let is_own = |head: &[u8]| head.starts_with(b"own");
        let output = Output { is_own, ..Output::new("--output", &path) };
        require_outputs(&[output], &inputs, overwrite).err().map(|e| e.to_string())
    }

    #[test]
    fn an_output_replaces_neither_an_input_nor_what_others_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("model/deep")).unwrap();
        for (name, text) in
            [("gold", "gold"), ("other", "theirs"), ("page", "own page"), ("model/deep/weights", "w")]
        {
            std::fs::write(path(name), text).unwrap();
        }
        std::fs::hard_link(path("gold"), path("hard")).unwrap();
        std::os::unix::fs::symlink(path("gold"), path("link")).unwrap();
        std::os::unix::fs::symlink(path("model/deep/weights"), path("to-weights")).unwrap();
        std::os::unix::fs::symlink(path("nothing"), path("dangling")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        let inputs = ["gold", "model", "not-there"];
        let of = |name: &str, overwrite: bool| refused(folder.path(), name, &inputs, overwrite);
        for name in ["new", "new-folder/new", "page"] {
            assert_eq!(of(name, false), None, "{name}");
        }
        for name in ["gold", "hard", "link", "./gold", "model/deep/weights", "to-weights"] {
            let message = of(name, true).unwrap_or_else(|| panic!("{name} is accepted"));
            assert!(message.contains("which this command reads"), "{message}");
        }
        for name in ["other", "dangling"] {
            assert!(of(name, false).unwrap().contains("exists already"), "{name}");
            assert_eq!(of(name, true), None, "{name}");
        }
        for (name, why) in [
            ("model", "is a folder"),
            ("pipe", "is a device or a pipe"),
            ("/dev/null", "is a device or a pipe"),
            ("gold/new", "is no folder"),
        ] {
            assert!(of(name, true).unwrap().contains(why), "{name}");
        }
    }

    #[test]
    fn two_outputs_have_two_files() {
        let folder = tempfile::tempdir().unwrap();
        let (one, same) = (folder.path().join("a"), folder.path().join("./a"));
        let outputs = [Output::new("--predictions", &one), Output::new("--dump-logits", &same)];
        let message = require_outputs(&outputs, &[], false).unwrap_err().to_string();
        assert!(message.contains("is also the file of `--predictions`"), "{message}");
    }
}
