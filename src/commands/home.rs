//! Expands `~/` at the beginning of a path on the command line, which a shell does not do in `--flag=~/x` and
//! in quotes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

const HOME: &str = "~/";

/// Replaces `~/` at the beginning of each argument by the home folder of the user, if it is known.
pub fn expand(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    arguments.into_iter().map(|argument| in_home(argument, home.as_deref())).collect()
}

/// Expands one argument, `~/x` or `--flag=~/x`; all others stay the same.
fn in_home(argument: OsString, home: Option<&Path>) -> OsString {
    let (Some(home), Some(text)) = (home, argument.to_str()) else { return argument };
    let (flag, path) = match text.split_once('=') {
        Some((flag, path)) if flag.starts_with("--") => (flag, path),
        _ => ("", text),
    };
    let Some(path) = path.strip_prefix(HOME) else { return argument };
    let mut expanded = OsString::from(flag);
    expanded.push(if flag.is_empty() { "" } else { "=" });
    expanded.push(home.join(path));
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_in_the_home_folder_are_expanded() {
        let home = Path::new("/home/ann");
        for (argument, expected) in
            [("~/corpus/a.txt", "/home/ann/corpus/a.txt"), ("--model=~/runs/a", "--model=/home/ann/runs/a")]
        {
            assert_eq!(in_home(argument.into(), Some(home)), expected);
        }
        for other in ["~", "~ann/x", "a=~/x", "data.files=~/x", "x~/y", "--set=run.output_dir=~/x", "--text"]
        {
            assert_eq!(in_home(other.into(), Some(home)), other);
        }
        assert_eq!(in_home("~/x".into(), None), "~/x");
    }
}
