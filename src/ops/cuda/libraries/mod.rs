//! Where the libraries of CUDA lie that the program loads while it runs: in which folders they are looked for,
//! and in which they are.
//!
//! The search only looks at names; nothing is loaded here, and it works in a build without CUDA. The order is
//! that of `LD_LIBRARY_PATH`, the folders beside the program, Python's packages (`folders.rs`), toolkits, and
//! what the system's own loader searches.

mod folders;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::Path;
use std::path::PathBuf;

use base::fs;

/// Files of CUDA 13 that belong together: all of one row come from one folder, where one has them all. Those
/// that others need stand first.
pub const LIBRARIES: [&[&str]; 2] = [&["libcublasLt.so.13", "libcublas.so.13"], &["libcurand.so.10"]];

/// What processes with GPUs want besides, in a build with it.
pub const NCCL: &[&str] = if cfg!(feature = "nccl") { &["libnccl.so.2"] } else { &[] };

/// The library of the driver, which is found by the system's loader alone: any other would not fit the
/// driver.
pub const DRIVER: &str = "libcuda.so.1";

/// What to do where one of them is missing.
pub const HINT: &str = "install CUDA 13's libraries (`pip install nvidia-cublas nvidia-curand`, or `scripts/cuda-toolkit.sh --libraries PREFIX`; for several processes `pip install nvidia-nccl-cu13`; no root is needed), and add their folder to LD_LIBRARY_PATH where it is none of these";

/// What the search depends on.
pub struct Surroundings<'a> {
    /// Variables of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// The folder of this program.
    pub program: Option<PathBuf>,
    /// Below which `/usr`, `/etc` and so on lie.
    pub root: PathBuf,
}

/// Why a folder is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Named in `LD_LIBRARY_PATH`.
    Variable,
    /// Beside the program.
    Program,
    /// A package of Python.
    Python,
    /// A toolkit.
    Toolkit,
    /// Searched by the system's loader.
    System,
}

impl Origin {
    /// In the order of the search.
    pub const ALL: [Self; 5] = [Self::Variable, Self::Program, Self::Python, Self::Toolkit, Self::System];

    /// In words.
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

/// A folder that is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Why.
    pub origin: Origin,
    /// With a star where there is no folder that fits it.
    pub folder: PathBuf,
}

/// The folders in their order, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places(Vec<Place>);

impl Places {
    /// All folders of these surroundings.
    pub fn of(surroundings: &Surroundings<'_>) -> Self {
        let mut places: Vec<Place> = Vec::new();
        for origin in Origin::ALL {
            for folder in folders::of(origin, surroundings) {
                if !places.iter().any(|place| is_same(&place.folder, &folder)) {
                    places.push(Place { origin, folder });
                }
            }
        }
        Self(places)
    }

    /// Those of this process.
    pub fn here() -> Self {
        let program = std::env::current_exe().ok().map(|path| fs::parent_of(&fs::canonical(&path)));
        Self::of(&Surroundings {
            variable: &|name| std::env::var_os(name),
            program,
            root: PathBuf::from("/"),
        })
    }

    /// Where each of `names`, which belong together, lies: first as they are in a folder that has them all,
    /// then one by one.
    pub fn find(&self, names: &[&str]) -> Vec<Vec<PathBuf>> {
        let file = |place: &Place, name: &str| Some(place.folder.join(name)).filter(|path| fs::exists(path));
        let is_whole = |place: &&Place| names.iter().all(|name| file(place, name).is_some());
        let (whole, others): (Vec<&Place>, Vec<&Place>) = self.0.iter().partition(is_whole);
        let in_order = || whole.iter().chain(&others);
        names.iter().map(|name| in_order().filter_map(|place| file(place, name)).collect()).collect()
    }

    /// The files that are loaded, by name; `None` for one that is nowhere.
    pub fn found(&self) -> Vec<(&'static str, Option<PathBuf>)> {
        let of_row = |names: &&'static [&'static str]| {
            let paths = self.find(names).into_iter().map(|paths| paths.into_iter().next());
            names.iter().copied().zip(paths).collect::<Vec<_>>()
        };
        LIBRARIES.iter().chain(std::iter::once(&NCCL)).flat_map(of_row).collect()
    }

    /// Where the driver's library lies, as far as its place can be told from names.
    pub fn driver(&self) -> Option<PathBuf> {
        let searched = |place: &&Place| matches!(place.origin, Origin::Variable | Origin::System);
        let mut paths = self.0.iter().filter(searched).map(|place| place.folder.join(DRIVER));
        paths.find(|path| fs::exists(path))
    }

    /// All folders in words, each origin's after its name.
    pub fn in_words(&self) -> String {
        let of_origin = |origin: Origin| {
            let folders = self.0.iter().filter(|place| place.origin == origin);
            let folders: Vec<String> = folders.map(|place| place.folder.display().to_string()).collect();
            let folders = if folders.is_empty() { "none".to_string() } else { folders.join(", ") };
            format!("{} ({folders})", origin.title())
        };
        Origin::ALL.map(of_origin).join("; ")
    }

    /// The folders.
    pub fn iter(&self) -> impl Iterator<Item = &Place> {
        self.0.iter()
    }
}

/// Whether two paths name one file or folder.
fn is_same(a: &Path, b: &Path) -> bool {
    fs::canonical(a) == fs::canonical(b)
}
