//! Search for the CUDA libraries that the program loads at run time: the folders that are searched, and the
//! files that are found.
//!
//! The search only looks at file names. It loads nothing and works in a build without CUDA. The order is:
//! `LD_LIBRARY_PATH`, the folders next to the program, Python's packages (`folders.rs`), CUDA toolkits, and
//! the folders that the system's own loader searches.

mod folders;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use base::fs;

/// Files of CUDA 13, grouped: all files of a group are taken from one folder if one has them all. Libraries
/// that others depend on come first.
pub const LIBRARIES: [&[&str]; 2] = [&["libcublasLt.so.13", "libcublas.so.13"], &["libcurand.so.10"]];

/// Libraries needed in addition for runs on several GPUs; empty in a build without NCCL.
pub const NCCL: &[&str] = if cfg!(feature = "nccl") { &["libnccl.so.2"] } else { &[] };

/// Library of the driver. It is loaded only by way of the system's loader, since any other copy would not
/// match the installed driver.
pub const DRIVER: &str = "libcuda.so.1";

/// Advice for the user if one of the libraries is missing.
pub const HINT: &str = "install CUDA 13's libraries (`pip install nvidia-cublas nvidia-curand`, or \
    `scripts/cuda-toolkit.sh --libraries PREFIX`; for several processes `pip install nvidia-nccl-cu13`; no root is \
    needed), and add their folder to LD_LIBRARY_PATH if it is not one of these";

/// Environment of the search; tests replace it.
pub struct Surroundings<'a> {
    /// Looks up an environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// Folder of this program.
    pub program: Option<PathBuf>,
    /// Root folder that contains `/usr`, `/etc` and so on.
    pub root: PathBuf,
}

/// Reason why a folder is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The folder is named in `LD_LIBRARY_PATH`.
    Variable,
    /// The folder is next to the program.
    Program,
    /// The folder is part of a Python package.
    Python,
    /// The folder is part of a CUDA toolkit.
    Toolkit,
    /// The system's loader searches the folder.
    System,
}

impl Origin {
    /// All origins in the order of the search.
    pub const ALL: [Self; 5] = [Self::Variable, Self::Program, Self::Python, Self::Toolkit, Self::System];

    /// Returns the description that messages use.
    pub fn title(self) -> &'static str {
        match self {
            Self::Variable => "LD_LIBRARY_PATH",
            Self::Program => "beside the program",
            Self::Python => "Python's packages",
            Self::Toolkit => "CUDA toolkits",
            Self::System => "the system's folders",
        }
    }
}

/// Folder that is searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Reason why it is searched.
    pub origin: Origin,
    /// Path of the folder; contains a `*` if no folder matches the pattern.
    pub folder: PathBuf,
}

impl Place {
    /// Returns the path of a file in this folder; `None` if there is no such file.
    fn file(&self, name: &str) -> Option<PathBuf> {
        Some(self.folder.join(name)).filter(|path| fs::exists(path))
    }
}

/// Folders in the order of the search, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places(Vec<Place>);

impl Places {
    /// Lists the folders for these surroundings.
    pub fn new(surroundings: &Surroundings<'_>) -> Self {
        let mut places: Vec<Place> = Vec::new();
        for origin in Origin::ALL {
            for folder in folders::from_origin(origin, surroundings) {
                if !places.iter().any(|place| is_same(&place.folder, &folder)) {
                    places.push(Place { origin, folder });
                }
            }
        }
        Self(places)
    }

    /// Lists the folders for this process.
    pub fn here() -> Self {
        let program = std::env::current_exe().ok().map(|path| fs::parent_of(&fs::canonical(&path)));
        Self::new(&Surroundings {
            variable: &|name| std::env::var_os(name),
            program,
            root: PathBuf::from("/"),
        })
    }

    /// Returns the paths at which each of `names`, a group of libraries, is found: first those in folders
    /// that have the whole group, then the others.
    pub fn find(&self, names: &[&str]) -> Vec<Vec<PathBuf>> {
        let (mut in_order, others): (Vec<&Place>, Vec<&Place>) =
            self.0.iter().partition(|place| names.iter().all(|name| place.file(name).is_some()));
        in_order.extend(others);
        names.iter().map(|name| in_order.iter().filter_map(|place| place.file(name)).collect()).collect()
    }

    /// Returns the file that is loaded for each library; `None` for one that is not found.
    pub fn found(&self) -> Vec<(&'static str, Option<PathBuf>)> {
        let mut found = Vec::new();
        for names in LIBRARIES.iter().chain(std::iter::once(&NCCL)) {
            let paths = self.find(names).into_iter().map(|paths| paths.into_iter().next());
            found.extend(names.iter().copied().zip(paths));
        }
        found
    }

    /// Returns the path of the driver's library, as far as file names show it.
    pub fn driver(&self) -> Option<PathBuf> {
        let is_searched = [Origin::Variable, Origin::System];
        self.0.iter().filter(|place| is_searched.contains(&place.origin)).find_map(|place| place.file(DRIVER))
    }

    /// Returns a text with all folders, grouped by origin.
    pub fn in_words(&self) -> String {
        Origin::ALL
            .map(|origin| {
                let folders = self.0.iter().filter(|place| place.origin == origin);
                let folders: Vec<String> = folders.map(|place| place.folder.display().to_string()).collect();
                let folders = if folders.is_empty() { "none".to_string() } else { folders.join(", ") };
                format!("{} ({folders})", origin.title())
            })
            .join("; ")
    }

    /// Iterates over the folders in the order of the search.
    pub fn iter(&self) -> impl Iterator<Item = &Place> {
        self.0.iter()
    }
}

/// Returns true if two paths name the same file or folder.
fn is_same(a: &Path, b: &Path) -> bool {
    fs::canonical(a) == fs::canonical(b)
}
