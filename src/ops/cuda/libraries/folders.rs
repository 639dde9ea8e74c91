//! Folders of each origin, found by their names; no program is run to find them.

use std::path::{Path, PathBuf};

use super::{Origin, Surroundings, is_same};
use base::fs;

/// Most bytes that are read of a file that lists folders.
const CAP_BYTES: u64 = 1 << 20;

/// Deepest nesting of files that include other files: no real system nests them deeper.
const DEEPEST: usize = 8;

/// Returns the folders of one origin, in the order of the search.
pub(super) fn from_origin(origin: Origin, surroundings: &Surroundings<'_>) -> Vec<PathBuf> {
    match origin {
        Origin::Variable => paths_in(surroundings, "LD_LIBRARY_PATH"),
        Origin::Program => surroundings.program.iter().flat_map(|folder| next_to_program(folder)).collect(),
        Origin::Python => python(surroundings),
        Origin::Toolkit => toolkits(surroundings),
        Origin::System => system(&surroundings.root),
    }
}

/// Returns the folders listed in an environment variable such as `PATH`.
fn paths_in(surroundings: &Surroundings<'_>, name: &str) -> Vec<PathBuf> {
    let value = (surroundings.variable)(name).unwrap_or_default();
    std::env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).collect()
}

fn folder_in(surroundings: &Surroundings<'_>, name: &str) -> Option<PathBuf> {
    (surroundings.variable)(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn next_to_program(program: &Path) -> Vec<PathBuf> {
    let mut folders = vec![program.to_path_buf(), program.join("lib")];
    folders.extend(program.parent().map(|above| above.join("lib/mlmtrain")));
    folders
}

/// Returns the folders `nvidia/cu13/lib` (or `nvidia/<package>/lib`) in which Python packages install
/// libraries: those of the active environments, then of the environment that this program is installed in,
/// then of each `python3` on the PATH, then the user's own.
fn python(surroundings: &Surroundings<'_>) -> Vec<PathBuf> {
    let mut prefixes: Vec<PathBuf> =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|name| folder_in(surroundings, name)).collect();
    let own = surroundings.program.as_deref().and_then(Path::parent).map(Path::to_path_buf);
    prefixes.extend(own.filter(|prefix| !pythons(prefix).is_empty()));
    for folder in paths_in(surroundings, "PATH") {
        let program = folder.join("python3");
        if !fs::exists(&program) {
            continue;
        }
        if folder.ends_with("shims") {
            // pyenv: the script in this folder starts one of the installed versions.
            let versions = fs::list(&fs::parent_of(&folder).join("versions")).unwrap_or_default();
            prefixes
                .extend(newest_first(versions).into_iter().filter(|version| !pythons(version).is_empty()));
            continue;
        }
        // In a virtual environment `python3` is a link to the interpreter that it was made with, which has
        // packages of its own.
        for program in [program.clone(), fs::canonical(&program)] {
            prefixes.extend(fs::parent_of(&program).parent().map(Path::to_path_buf));
        }
    }
    prefixes.extend(folder_in(surroundings, "HOME").map(|home| home.join(".local")));
    let system = surroundings.root.join("usr");
    let mut folders = Vec::new();
    for prefix in prefixes {
        folders.extend(packages(&prefix));
        if is_same(&prefix, &system) {
            // On Debian, pip installs packages for all users here.
            folders.extend(packages(&system.join("local")));
        }
    }
    folders
}

/// Returns `<prefix>/lib/python3*`, the newest first. If `/lib` is a link to `/usr/lib`, the paths are those
/// in `/usr/lib`.
fn pythons(prefix: &Path) -> Vec<PathBuf> {
    newest_first(matching(&fs::canonical(&prefix.join("lib")), |name| name.starts_with("python3")))
}

/// Returns `<prefix>/lib/python3*/{site,dist}-packages/nvidia/*/lib`, with a `*` left in the first part that
/// has no match.
fn packages(prefix: &Path) -> Vec<PathBuf> {
    let sites: Vec<PathBuf> = pythons(prefix)
        .iter()
        .flat_map(|python| [python.join("site-packages"), python.join("dist-packages")])
        .filter(|site| fs::is_folder(site))
        .collect();
    if sites.is_empty() {
        return vec![prefix.join("lib/python3*/site-packages/nvidia/*/lib")];
    }
    let mut folders = Vec::new();
    for site in sites {
        let nvidia = site.join("nvidia");
        let mut with_libraries = matching(&nvidia, |_| true);
        with_libraries.retain(|package| fs::is_folder(&package.join("lib")));
        // The package of CUDA 13 itself comes before all others.
        with_libraries.sort_by_key(|package| !package.ends_with("cu13"));
        if with_libraries.is_empty() {
            with_libraries.push(nvidia.join("*"));
        }
        folders.extend(with_libraries.into_iter().map(|package| package.join("lib")));
    }
    folders
}

/// Returns the library folders of toolkits: those that CUDA's environment variables name, and
/// `/usr/local/cuda*`, where the link `cuda` comes before the numbered versions.
fn toolkits(surroundings: &Surroundings<'_>) -> Vec<PathBuf> {
    let mut toolkits: Vec<PathBuf> =
        ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(|name| folder_in(surroundings, name)).collect();
    let local = surroundings.root.join("usr/local");
    let mut found = matching(&local, |name| name == "cuda");
    found.extend(newest_first(matching(&local, |name| name.starts_with("cuda-"))));
    if found.is_empty() {
        found.push(local.join("cuda*"));
    }
    toolkits.extend(found);
    let mut folders = Vec::new();
    for toolkit in toolkits {
        let targets = matching(&toolkit.join("targets"), |name| TARGETS.contains(&name));
        folders.push(toolkit.join("lib64"));
        folders.extend(targets.into_iter().map(|target| target.join("lib")));
    }
    folders
}

/// Names that toolkits give to the platforms that this program runs on.
pub(super) const TARGETS: &[&str] =
    if cfg!(target_arch = "aarch64") { &["aarch64-linux", "sbsa-linux"] } else { &["x86_64-linux"] };

/// Returns the folders that the loader of Linux searches: those of `/etc/ld.so.conf`, then its built-in ones.
fn system(root: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    add_listed_folders(root, &root.join("etc/ld.so.conf"), DEEPEST, &mut folders);
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    for folder in ["lib", "usr/lib"] {
        folders.extend([
            root.join(folder).join(&triple),
            root.join(format!("{folder}64")),
            root.join(folder),
        ]);
    }
    folders.retain(|folder| fs::is_folder(folder));
    folders
}

/// Adds the folders that a file lists, one per line; a line `include PATTERN` includes other files.
fn add_listed_folders(root: &Path, file: &Path, depth: usize, folders: &mut Vec<PathBuf>) {
    let Ok(text) = fs::read_text_capped(file, CAP_BYTES) else { return };
    for line in text.lines().map(|line| line.split('#').next().unwrap_or("").trim()) {
        if let Some(pattern) = line.strip_prefix("include ").filter(|_| depth > 0) {
            let pattern = match pattern.trim() {
                absolute if absolute.starts_with('/') => below_root(root, absolute),
                relative => fs::parent_of(file).join(relative),
            };
            let files = glob::glob(&pattern.to_string_lossy()).into_iter().flatten().flatten();
            files.for_each(|file| add_listed_folders(root, &file, depth - 1, folders));
        } else if line.starts_with('/') {
            folders.push(below_root(root, line));
        }
    }
}

/// Returns an absolute path inside the root folder of the search.
fn below_root(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// Sorts paths by the numbers in their names, the largest first: 3.13 comes before 3.9.
fn newest_first(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort_by_cached_key(|path| std::cmp::Reverse(numbers_in_name(path)));
    paths
}

fn numbers_in_name(path: &Path) -> Vec<u32> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// Returns the entries of a folder whose names fit, sorted; an empty list if the folder cannot be read.
fn matching(folder: &Path, fits: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut entries = fs::list(folder).unwrap_or_default();
    entries.retain(|path| path.file_name().is_some_and(|name| fits(&name.to_string_lossy())));
    entries
}
