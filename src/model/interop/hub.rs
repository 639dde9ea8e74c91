//! Resolves a name of the Hugging Face hub that is given in place of a model folder: finds the model in the
//! hub's own cache on this machine, or names the command that downloads it.
//!
//! Nothing is downloaded here.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use base::error::Problem;
use base::fs;

/// Usual names of local folders with models: `models/minilm` is not taken for a name of the hub.
const OWN_FOLDERS: [&str; 4] = ["models", "model", "runs", "checkpoints"];

/// Returns the folder in the hub's cache of the model with this name; `None` if `path` exists, is not a name
/// of the hub, or is not in the cache.
pub fn cached_folder(path: &Path) -> Option<PathBuf> {
    cached(path, &|name| std::env::var_os(name))
}

/// Reads one environment variable; tests pass their own.
type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

fn cached(path: &Path, variable: Variable<'_>) -> Option<PathBuf> {
    let name = hub_name(path)?;
    let model = hub_cache(variable)?.join(format!("models--{}", name.replace('/', "--")));
    let snapshots = model.join("snapshots");
    let named = fs::read_text_capped(&model.join("refs").join("main"), 1 << 10).ok();
    let snapshot = named.map(|commit| snapshots.join(commit.trim())).filter(|folder| is_model(folder));
    snapshot.or_else(|| newest_in(&snapshots).filter(|folder| is_model(folder)))
}

/// Returns the folder of the hub's cache: `HF_HUB_CACHE`, else `hub` in the hub's home.
fn hub_cache(variable: Variable<'_>) -> Option<PathBuf> {
    path_in(variable, "HF_HUB_CACHE").or_else(|| Some(hub_home(variable)?.join("hub")))
}

fn hub_home(variable: Variable<'_>) -> Option<PathBuf> {
    path_in(variable, "HF_HOME").or_else(|| {
        let cache = path_in(variable, "XDG_CACHE_HOME")
            .or_else(|| Some(path_in(variable, "HOME")?.join(".cache")))?;
        Some(cache.join("huggingface"))
    })
}

/// Returns the value of a variable as a path; `None` if the variable is unset or empty.
fn path_in(variable: Variable<'_>, name: &str) -> Option<PathBuf> {
    variable(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns the entry of a folder that was modified last.
fn newest_in(folder: &Path) -> Option<PathBuf> {
    let all = fs::list(folder).ok()?;
    all.into_iter().max_by_key(|path| fs::modified(path).ok())
}

/// Returns true if a folder has a `config.json`.
pub(super) fn is_model(folder: &Path) -> bool {
    fs::exists(&folder.join("config.json"))
}

/// Returns an error if a folder has no `config.json`, so that it is not a model folder.
pub(super) fn require_config(folder: &Path) -> Result<(), Problem> {
    if is_model(folder) {
        return Ok(());
    }
    Err(not_here(folder).unwrap_or_else(|| {
        let hint = match model_below(folder) {
            Some(model) => format!("the model of this run is `{}`", model.display()),
            None => {
                "name a model folder in the Hugging Face layout, or a checkpoint folder of a run".to_string()
            }
        };
        let message = if fs::exists(folder) {
            "there is no `config.json`, so this is no model folder"
        } else {
            "there is no such folder"
        };
        Problem::new(message).at(folder.display()).hint(hint)
    }))
}

/// Returns the final model of a run folder, or of the first of its seeds.
fn model_below(run: &Path) -> Option<PathBuf> {
    let seeds = fs::list(run).unwrap_or_default();
    let runs = std::iter::once(run.to_path_buf()).chain(seeds);
    runs.map(|run| run.join("final")).find(|model| is_model(model))
}

/// Returns the error for a hub name that is not on this machine, with the command that downloads the model;
/// `None` if `path` is not a name of the hub.
fn not_here(path: &Path) -> Option<Problem> {
    let name = hub_name(path)?;
    let folder = format!("models/{}", name.rsplit('/').next().unwrap_or(name));
    let message = format!("there is no folder `{name}`, and nothing is downloaded");
    // The pattern selects the JSON files, the texts and the safetensors, not the same weights in four other
    // formats.
    let hint = format!(
        "for the hub's model of that name: `hf download {name} --include \"*.[jst]*\" --local-dir {folder}`, then \
         name `{folder}`; a model in the hub's cache is found by its name"
    );
    Some(Problem::new(message).hint(hint))
}

/// Returns `path` if it has the form of a hub name (`bert-base-uncased` or `organisation/model`) and no
/// folder has that name.
fn hub_name(path: &Path) -> Option<&str> {
    let name = path.to_str()?;
    let parts: Vec<&str> = name.split('/').collect();
    let is_relative = path.components().all(|part| matches!(part, Component::Normal(_)));
    let is_name =
        is_relative && (1..=2).contains(&parts.len()) && parts.iter().all(|part| is_plain_name(part));
    if !is_name || fs::exists(path) {
        return None;
    }
    let is_own = parts.len() == 2 && (OWN_FOLDERS.contains(&parts[0]) || fs::is_folder(Path::new(parts[0])));
    (!is_own).then_some(name)
}

/// Returns true for ASCII letters, digits, `-`, `_` and `.`, where the first is a letter or digit.
fn is_plain_name(part: &str) -> bool {
    part.starts_with(|c: char| c.is_ascii_alphanumeric())
        && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_hub_are_distinguished_from_paths() {
        for name in
            ["bert-base-uncased", "TurkuNLP/bert-base-finnish-cased-v1", "answerdotai/ModernBERT-base"]
        {
            assert_eq!(hub_name(Path::new(name)), Some(name));
        }
        for path in [
            "layers",
            "layers/none",
            "models/minilm",
            "runs/a",
            "a/b/c",
            "./a",
            "../a",
            "/a",
            "a/",
            "a b",
            "",
            "-a/b",
        ] {
            assert_eq!(hub_name(Path::new(path)), None, "{path}");
        }
        let problem = not_here(Path::new("TurkuNLP/bert-base-finnish-cased-v1")).unwrap();
        let message = problem.to_string();
        assert!(
            message.starts_with("there is no folder `TurkuNLP/bert-base-finnish-cased-v1`, and nothing is"),
            "{message}"
        );
        let command = "`hf download TurkuNLP/bert-base-finnish-cased-v1 --include \"*.[jst]*\" --local-dir \
                       models/bert-base-finnish-cased-v1`";
        assert!(message.contains(command), "{message}");
    }

    #[test]
    fn a_model_is_found_in_the_cache_of_the_hub() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let model = "home/hub/models--some-org--some-model";
        let home = [("HF_HOME", path("home"))];
        assert_eq!(found(&home), None);
        write(&path(model).join("snapshots/older/config.json"), "{}");
        assert_eq!(found(&home), Some(path(model).join("snapshots/older")));
        write(&path(model).join("snapshots/newer/README.md"), "");
        write(&path(model).join("refs/main"), "older\n");
        assert_eq!(found(&home), Some(path(model).join("snapshots/older")));
        assert_eq!(found(&[("HF_HUB_CACHE", path("home/hub"))]), Some(path(model).join("snapshots/older")));
        assert_eq!(found(&[("HOME", path("home"))]), None);
        std::fs::create_dir_all(path("own/.cache")).unwrap();
        std::fs::rename(path("home"), path("own/.cache/huggingface")).unwrap();
        let there = path("own/.cache/huggingface/hub/models--some-org--some-model/snapshots/older");
        assert_eq!(found(&[("HOME", path("own"))]), Some(there.clone()));
        assert_eq!(
            found(&[("XDG_CACHE_HOME", path("own/.cache")), ("HF_HOME", PathBuf::new())]),
            Some(there)
        );
        assert_eq!(found(&[]), None);
    }

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Returns the cached folder of `some-org/some-model` if the environment has these variables only.
    fn found(variables: &[(&str, PathBuf)]) -> Option<PathBuf> {
        cached(Path::new("some-org/some-model"), &|name| {
            variables.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone().into())
        })
    }
}
