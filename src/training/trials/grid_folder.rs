//! Output folders of commands that train many runs: each belongs to one command, and ordinary runs have
//! folders of their own.
//!
//! This module does not compare a command with the earlier one of the same kind: each kind does that itself.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::train::used;
use crate::trials::record;
use base::error::Problem;
use base::fs;

/// Folder of the cells of a sweep without swept keys, which has several seeds alone.
pub(super) const WITHOUT_KEYS: &str = "sweep";

/// A command that trains many runs, each in a folder of its own below the output folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grid {
    /// A sweep or a learning curve.
    Sweep,
    /// A tuning.
    Tuning,
    /// A comparison.
    Comparison,
}

impl Grid {
    const ALL: [Self; 3] = [Self::Sweep, Self::Tuning, Self::Comparison];

    /// Name of the file with its results, in the output folder.
    pub(super) const fn results(self) -> &'static str {
        match self {
            Self::Sweep => "sweep.json",
            Self::Tuning => "tune.json",
            Self::Comparison => "compare.json",
        }
    }

    /// The end of a message about a file of this command.
    fn owner(self) -> &'static str {
        match self {
            Self::Sweep => "of a sweep or a learning curve",
            Self::Tuning => "of a tuning",
            Self::Comparison => "of a comparison",
        }
    }

    /// The advice to a command that is refused in the folder of this one.
    fn hint(self) -> &'static str {
        match self {
            Self::Tuning => {
                "choose another `run.output_dir` (`--output-dir`); the winner's configuration, `tune.yaml`, \
                 names a folder of its own"
            }
            Self::Sweep | Self::Comparison => "choose another `run.output_dir` (`--output-dir`)",
        }
    }
}

/// Refuses a folder for the runs of `own` if another command or an ordinary run has written to it.
pub(super) fn refuse_used(output: &Path, own: Grid) -> Result<()> {
    refuse_others(output, Some(own))?;
    used::refuse_single(output)?;
    used::refuse_seeds(output)
}

/// Refuses the folder of a command that trains many runs, unless that is `own`.
pub(super) fn refuse_others(output: &Path, own: Option<Grid>) -> Result<()> {
    let Some((grid, name)) = other(output, own)? else { return Ok(()) };
    Err(Problem::usage(format!("holds `{name}` {}", grid.owner()))
        .at(output.display())
        .hint(grid.hint())
        .into())
}

/// The command other than `own` that a folder belongs to, with the name of the file or folder that shows it.
fn other(output: &Path, own: Option<Grid>) -> Result<Option<(Grid, String)>> {
    let others = Grid::ALL.into_iter().filter(|grid| Some(*grid) != own);
    let written = others.map(|grid| (grid, grid.results())).find(|(_, name)| fs::exists(&output.join(name)));
    if let Some((grid, name)) = written {
        return Ok(Some((grid, name.to_string())));
    }
    // Without a lock file, no command has worked in this folder: it may be above the folders of commands.
    if !fs::has_lock(output) {
        return Ok(None);
    }
    Ok(begun(output)?.filter(|(grid, _)| Some(*grid) != own))
}

/// The command whose complete cells are in a folder, also before it has written results, with the name of a
/// folder of cells.
fn begun(output: &Path) -> Result<Option<(Grid, String)>> {
    if let Some(name) = settings_in(output)?.into_iter().next() {
        return Ok(Some((Grid::Sweep, name)));
    }
    for task in folders(output)? {
        for model in folders(&task)? {
            // The cells of a sweep have the same depth if its folder is below `output`.
            if swept_keys(&name_of(&model)).is_none() && has_cells(&model)? {
                return Ok(Some((Grid::Comparison, name_of(&task))));
            }
        }
    }
    Ok(None)
}

/// Names of the folders of a sweep's settings that have complete cells, such as `learning_rate=1e-5`.
pub(super) fn settings_in(output: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for folder in folders(output)? {
        let name = name_of(&folder);
        if swept_keys(&name).is_some() && has_cells(&folder)? {
            names.push(name);
        }
    }
    Ok(names)
}

/// The keys in the name of the folder of a sweep's setting; `None` for a folder of another name.
pub(super) fn swept_keys(name: &str) -> Option<Vec<&str>> {
    if name == WITHOUT_KEYS {
        return Some(Vec::new());
    }
    name.split(',').map(|pair| Some(pair.split_once('=')?.0)).collect()
}

fn has_cells(folder: &Path) -> Result<bool> {
    Ok(folders(folder)?.iter().any(|cell| record::exists(cell)))
}

fn folders(path: &Path) -> Result<Vec<PathBuf>> {
    Ok(fs::list(path)?.into_iter().filter(|path| fs::is_folder(path)).collect())
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these files, in which a command has worked.
    fn folder_of(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in files.iter().chain(&[".lock"]) {
            fs::create_folder(&fs::parent_of(&folder.path().join(name))).unwrap();
            fs::write_bytes(&folder.path().join(name), b"{}").unwrap();
        }
        folder
    }

    /// The message that refuses the folder with these files for `own`.
    fn refusal(files: &[&str], own: Grid) -> Option<String> {
        refuse_used(folder_of(files).path(), own).err().map(|e| e.to_string())
    }

    #[test]
    fn each_command_has_a_folder_of_its_own() {
        for (name, owner, grid) in [
            ("sweep.json", "holds `sweep.json` of a sweep or a learning curve", Grid::Sweep),
            ("tune.json", "holds `tune.json` of a tuning", Grid::Tuning),
            ("compare.json", "holds `compare.json` of a comparison", Grid::Comparison),
            ("rate=1,decay=0/seed-1/cell.json", "holds `rate=1,decay=0` of a sweep", Grid::Sweep),
            ("sweep/seed-1/cell.json", "holds `sweep` of a sweep", Grid::Sweep),
            ("animals/mine/seed-1/cell.json", "holds `animals` of a comparison", Grid::Comparison),
        ] {
            for own in Grid::ALL {
                let message = refusal(&[name], own);
                let is_right = message.as_ref().is_none_or(|message| message.contains(owner));
                assert!(is_right && message.is_none() == (own == grid), "{name}, {own:?}: {message:?}");
            }
            assert!(refuse_others(folder_of(&[name]).path(), None).is_err(), "{name}");
        }
    }

    #[test]
    fn an_ordinary_run_is_refused_and_folders_below_are_none() {
        for own in Grid::ALL {
            let single = refusal(&["metrics.jsonl"], own).unwrap();
            assert!(single.contains("holds `metrics.jsonl` of a run with one seed"), "{single}");
            let seeds = refusal(&["seed-7/config.yaml"], own).unwrap();
            assert!(seeds.contains("holds `seed-7` of a run with several seeds"), "{seeds}");
            assert_eq!(refusal(&["swept/rate=1/seed-1/cell.json", "ours/seed-1/config.yaml"], own), None);
        }
    }

    #[test]
    fn a_folder_above_those_of_commands_is_free() {
        let above = folder_of(&["rate=1/seed-1/cell.json", "animals/mine/seed-1/cell.json"]);
        fs::remove_file(&above.path().join(".lock")).unwrap();
        refuse_others(above.path(), None).unwrap();
    }
}
