//! The rule for files that the user asks a command to write: an output replaces neither a file that the
//! command reads nor a file that the command did not write.
//!
//! All outputs of all commands follow it. This module writes nothing: [`super::write_atomic`] does.

use std::fs::Metadata;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::error::Problem;

/// Number of first bytes that show which program wrote a file.
const HEAD_BYTES: u64 = 4 << 10;

/// A file that a command is about to write.
#[derive(Clone, Copy)]
pub struct Output<'a> {
    /// The flag or key that names the file, for error messages.
    pub named_by: &'a str,
    /// Path of the file.
    pub path: &'a Path,
    /// Returns true if the first bytes of a file show that the same command wrote it; such a file may be
    /// replaced.
    pub is_own: fn(&[u8]) -> bool,
}

impl<'a> Output<'a> {
    /// An output whose earlier versions cannot be recognised by their first bytes: any existing file is kept.
    pub fn new(named_by: &'a str, path: &'a Path) -> Self {
        Self { named_by, path, is_own: |_| false }
    }

    /// The error that refuses this output.
    fn refusal(&self, message: String, hint: &str) -> anyhow::Error {
        let place = format!("{} {}", self.named_by, self.path.display());
        Problem::usage(message).at(place).hint(hint).into()
    }
}

/// Checks the outputs of a command before anything is written. These are refused: an output that is one of
/// the `inputs` (files, or folders of which all files are read), by any name or link; an existing path that
/// is not a regular file; two outputs at the same path; and, unless `overwrite`, an existing file that the
/// command did not write.
pub fn require_outputs(outputs: &[Output<'_>], inputs: &[&Path], overwrite: bool) -> Result<()> {
    for (index, output) in outputs.iter().enumerate() {
        let path = resolved(output.path);
        if let Some(other) = outputs[..index].iter().find(|other| resolved(other.path) == path) {
            let message = format!("is also the file of `{}`", other.named_by);
            return Err(output.refusal(message, "give each its own file"));
        }
        require_output(output, inputs, overwrite)?;
    }
    Ok(())
}

fn require_output(output: &Output<'_>, inputs: &[&Path], overwrite: bool) -> Result<()> {
    let folder = super::parent_of(output.path);
    if folder.exists() && !folder.is_dir() {
        let message = format!("`{}` is no folder", folder.display());
        return Err(output.refusal(message, "name a file in a folder"));
    }
    // A broken link is an existing file, too: someone else gave it this name.
    let Ok(link) = std::fs::symlink_metadata(output.path) else { return Ok(()) };
    let found = std::fs::metadata(output.path).unwrap_or(link);
    if found.is_dir() {
        return Err(output.refusal("is a folder, a file is wanted".to_string(), "name a file in it"));
    }
    if !found.is_file() && !found.is_symlink() {
        let hint = "name a file; what goes to standard output can be sent anywhere";
        let message = "is a device or a pipe, and a file would take its place";
        return Err(output.refusal(message.to_string(), hint));
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
        return Err(output.refusal(message, "name another file: an output never replaces an input"));
    }
    if overwrite {
        return Ok(());
    }
    let message = "exists already, and is not replaced";
    Err(output.refusal(message.to_string(), "name another file, or give `--overwrite`"))
}

/// Returns true if `input` is this file, or a folder that contains it.
fn holds(input: &Path, file: &Metadata) -> bool {
    let Ok(found) = std::fs::metadata(input) else { return false };
    if !found.is_dir() {
        return super::is_same_file(&found, file);
    }
    let files = super::files_below(input).unwrap_or_default();
    files.iter().any(|path| std::fs::metadata(path).is_ok_and(|found| super::is_same_file(&found, file)))
}

/// The canonical path of an output, which all names of the same file share; the file does not have to exist.
fn resolved(path: &Path) -> PathBuf {
    let folder = super::canonical(&super::parent_of(path));
    super::canonical(&folder.join(path.file_name().unwrap_or_default()))
}

/// The first bytes of a file; empty if it cannot be read.
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

    /// The message that refuses an output of this name; `None` if it is accepted.
    fn refused(folder: &Path, name: &str, inputs: &[&str], overwrite: bool) -> Option<String> {
        let path = folder.join(name);
        let inputs: Vec<PathBuf> = inputs.iter().map(|name| folder.join(name)).collect();
        let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
        let output = Output { is_own: |head| head.starts_with(b"own"), ..Output::new("--output", &path) };
        require_outputs(&[output], &inputs, overwrite).err().map(|e| e.to_string())
    }

    #[test]
    fn an_output_replaces_neither_an_input_nor_what_others_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("model/deep")).unwrap();
        for (name, text) in
            [("gold", "gold"), ("other", "theirs"), ("page", "own page"), ("model/deep/weights", "w")]
        {
            std::fs::write(root.join(name), text).unwrap();
        }
        std::fs::hard_link(root.join("gold"), root.join("hard")).unwrap();
        std::os::unix::fs::symlink(root.join("gold"), root.join("link")).unwrap();
        std::os::unix::fs::symlink(root.join("model/deep/weights"), root.join("to-weights")).unwrap();
        std::os::unix::fs::symlink(root.join("nothing"), root.join("dangling")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(root.join("pipe")).status().unwrap().success());
        let inputs = ["gold", "model", "not-there"];
        for name in ["new", "new-folder/new", "page"] {
            assert_eq!(refused(root, name, &inputs, false), None, "{name}");
        }
        for name in ["gold", "hard", "link", "./gold", "model/deep/weights", "to-weights"] {
            let message = refused(root, name, &inputs, true).unwrap_or_else(|| panic!("{name} is accepted"));
            assert!(message.contains("which this command reads"), "{message}");
        }
        for name in ["other", "dangling"] {
            assert!(refused(root, name, &inputs, false).unwrap().contains("exists already"), "{name}");
            assert_eq!(refused(root, name, &inputs, true), None, "{name}");
        }
        for (name, why) in [
            ("model", "is a folder"),
            ("pipe", "is a device or a pipe"),
            ("/dev/null", "is a device or a pipe"),
            ("gold/new", "is no folder"),
        ] {
            assert!(refused(root, name, &inputs, true).unwrap().contains(why), "{name}");
        }
    }

    #[test]
    fn two_outputs_have_two_files() {
        let folder = tempfile::tempdir().unwrap();
        let one = folder.path().join("a");
        let same = folder.path().join("./a");
        let outputs = [Output::new("--predictions", &one), Output::new("--dump-logits", &same)];
        let message = require_outputs(&outputs, &[], false).unwrap_err().to_string();
        assert!(message.contains("is also the file of `--predictions`"), "{message}");
    }
}
