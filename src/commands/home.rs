//! `~/` at the beginning of a path on the command line, which a shell leaves as it is in `--flag=~/x` and in quotes.

use std::ffi::OsString;
use std::path::Path;
use std::path::PathBuf;

const HOME: &str = "~/";

/// Arguments with the home folder of the user in the place of `~`; as they are where none is known.
pub fn expanded(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    arguments.into_iter().map(|argument| in_home(argument, home.as_deref())).collect()
}

/// `~/x` and `--flag=~/x`, in the folder `home`.
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
    fn paths_in_the_home_folder_are_found_and_all_else_is_as_it_was() {
        let told =
            |argument: &str| in_home(argument.into(), Some(Path::new("/home/ann"))).into_string().unwrap();
        assert_eq!(told("~/corpus/a.txt"), "/home/ann/corpus/a.txt");
        assert_eq!(told("--model=~/runs/a"), "/home/ann/runs/a".replace("/home", "--model=/home"));
        for other in ["~", "~ann/x", "a=~/x", "data.files=~/x", "x~/y", "--set=run.output_dir=~/x", "--text"]
        {
            assert_eq!(told(other), other);
        }
        assert_eq!(in_home("~/x".into(), None), "~/x");
    }
}
