//! A name of the Hugging Face hub in the place of a model folder: where the hub's own cache on this machine
//! has it, and what downloads it where not.
//!
//! Nothing is downloaded here.

use std::ffi::OsString;
use std::path::Component;
use std::path::Path;
use std::path::PathBuf;

use crate::error::Problem;
use crate::fs;

/// Folders that hold models of this machine: `models/minilm` is no name of the hub.
const OWN_FOLDERS: [&str; 4] = ["models", "model", "runs", "checkpoints"];

/// The folder of the hub's cache that holds the model of this name; none where `path` is there itself, is no
/// name of the hub, or is not in the cache.
pub fn cached_folder(path: &Path) -> Option<PathBuf> {
    cached(path, &|name| std::env::var_os(name))
}

fn cached(path: &Path, variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let name = hub_name(path)?;
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || {
        set("HF_HOME").or_else(|| {
            let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
            Some(cache.join("huggingface"))
        })
    };
    let cache = set("HF_HUB_CACHE").or_else(|| Some(home()?.join("hub")))?;
    let model = cache.join(format!("models--{}", name.replace('/', "--")));
    let snapshots = model.join("snapshots");
    let named = fs::read_text_capped(&model.join("refs").join("main"), 1 << 10).ok();
    let newest = || {
        let all = fs::list(&snapshots).ok()?;
        all.into_iter().max_by_key(|folder| fs::modified(folder).ok())
    };
    let snapshot = named.map(|commit| snapshots.join(commit.trim())).filter(|folder| is_model(folder));
    snapshot.or_else(|| newest().filter(|folder| is_model(folder)))
}

fn is_model(folder: &Path) -> bool {
    fs::exists(&folder.join("config.json"))
}

/// Refuses what is no model folder.
pub(super) fn require_config(folder: &Path) -> Result<(), Problem> {
    if is_model(folder) {
        return Ok(());
    }
    Err(not_here(folder).unwrap_or_else(|| {
        Problem::new("there is no `config.json`, so this is no model folder")
            .at(folder.display())
            .hint("name a model folder in the Hugging Face layout, or a checkpoint folder of a run")
    }))
}

/// Why there is no such folder, and the command that makes one; none where `path` is no name of the hub.
fn not_here(path: &Path) -> Option<Problem> {
    let name = hub_name(path)?;
    let folder = format!("models/{}", name.rsplit('/').next().unwrap_or(name));
    let message = format!("there is no folder `{name}`, and nothing is downloaded");
    // The JSON files, the texts and the safetensors, not the same weights in four other formats.
    let hint = format!(
        "for the hub's model of that name: `hf download {name} --include \"*.[jst]*\" --local-dir {folder}`, then \
         name `{folder}`; a model in the hub's cache is found by its name"
    );
    Some(Problem::new(message).hint(hint))
}

/// `bert-base-uncased`, or `organisation/model`, where no folder has that name.
fn hub_name(path: &Path) -> Option<&str> {
    let name = path.to_str()?;
    let parts: Vec<&str> = name.split('/').collect();
    let is_plain = |part: &&str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let is_relative = path.components().all(|part| matches!(part, Component::Normal(_)));
    let is_name = is_relative && (1..=2).contains(&parts.len()) && parts.iter().all(is_plain);
    if !is_name || fs::exists(path) {
        return None;
    }
    let is_own = parts.len() == 2 && (OWN_FOLDERS.contains(&parts[0]) || fs::is_folder(Path::new(parts[0])));
    (!is_own).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_hub_are_told_from_paths() {
        for name in
            ["bert-base-uncased", "TurkuNLP/bert-base-finnish-cased-v1", "answerdotai/ModernBERT-base"]
        {
            assert_eq!(hub_name(Path::new(name)), Some(name));
        }
        for path in [
            "src",
            "src/none",
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
        let told = problem.to_string();
        assert!(
            told.starts_with("there is no folder `TurkuNLP/bert-base-finnish-cased-v1`, and nothing is"),
            "{told}"
        );
        let command = "`hf download TurkuNLP/bert-base-finnish-cased-v1 --include \"*.[jst]*\" --local-dir \
                       models/bert-base-finnish-cased-v1`";
        assert!(told.contains(command), "{told}");
    }

    #[test]
    fn the_cache_of_the_hub_is_looked_into() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| {
            std::fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            std::fs::write(path(name), text).unwrap();
        };
        let model = "home/hub/models--some-org--some-model";
        let found = |variables: &[(&str, PathBuf)]| {
            let value =
                |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone().into());
            cached(Path::new("some-org/some-model"), &value)
        };
        let home = [("HF_HOME", path("home"))];
        assert_eq!(found(&home), None);
        write(&format!("{model}/snapshots/older/config.json"), "{}");
        assert_eq!(found(&home), Some(path(model).join("snapshots/older")));
        write(&format!("{model}/snapshots/newer/README.md"), "");
        write(&format!("{model}/refs/main"), "older\n");
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
}
