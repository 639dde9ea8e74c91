//! Facts about a machine, and the settings of a run on it: the report of `mlmtrain doctor`.
//!
//! Facts that cannot be determined are `None`; nothing here fails. Files are read below a folder that is `/`
//! outside of tests, so that tests can make up machines.

mod gpus;
mod memory;
mod processor;
mod run;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use serde::Serialize;

use base::fs;
use ops::cuda::libraries::{DRIVER, Origin, Places};

pub use gpus::Gpus;
pub use memory::Memory;
pub use processor::{Processor, Product};
pub use run::Run;

/// A machine as `mlmtrain doctor` reports it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Survey {
    /// Version of this program.
    pub version: &'static str,
    /// Processor.
    pub processor: Processor,
    /// Main memory.
    pub memory: Memory,
    /// NVIDIA GPUs.
    pub gpus: Gpus,
    /// Libraries that a GPU needs.
    pub cuda_libraries: Libraries,
    /// Folders for files, with their free space.
    pub disk: Vec<Room>,
    /// Settings that a run would choose on this machine.
    pub run: Run,
}

impl Survey {
    /// This machine, as this process sees it.
    pub fn here() -> Self {
        let root = Path::new("/");
        let folders = [
            ("current folder", std::env::current_dir().ok()),
            ("temporary folder", Some(std::env::temp_dir())),
            ("shared memory", Some(root.join("dev/shm"))),
        ];
        Self {
            version: env!("CARGO_PKG_VERSION"),
            processor: Processor::read(root),
            memory: Memory::read(root),
            gpus: Gpus::read(root),
            cuda_libraries: Libraries::new(&Places::here()),
            disk: folders.into_iter().map(|(name, path)| Room::new(name, path)).collect(),
            run: Run::by_default(),
        }
    }
}

/// The libraries of CUDA, and the folders that were searched for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Libraries {
    /// Libraries by name.
    pub found: Vec<Library>,
    /// Searched folders, in the order of the search.
    pub looked_in: Vec<Looked>,
}

/// A library of CUDA.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Library {
    /// Name of its file.
    pub name: &'static str,
    /// Its path; `None` if it was not found.
    pub path: Option<PathBuf>,
}

/// Searched folders of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Looked {
    /// Reason why these folders are searched.
    pub because: &'static str,
    /// The folders; a pattern with a star is kept if no folder matches it.
    pub folders: Vec<PathBuf>,
}

impl Looked {
    fn new(places: &Places, origin: Origin) -> Self {
        let folders = places.iter().filter(|place| place.origin == origin);
        Self { because: origin.title(), folders: folders.map(|place| place.folder.clone()).collect() }
    }
}

impl Libraries {
    fn new(places: &Places) -> Self {
        let driver = std::iter::once((DRIVER, places.driver()));
        Self {
            found: driver.chain(places.found()).map(|(name, path)| Library { name, path }).collect(),
            looked_in: Origin::ALL.into_iter().map(|origin| Looked::new(places, origin)).collect(),
        }
    }
}

/// A folder and its free space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Room {
    /// Role of the folder, such as `temporary folder`.
    pub name: &'static str,
    /// Path of the folder.
    pub path: Option<PathBuf>,
    /// Free space for this user.
    pub free_bytes: Option<u64>,
}

impl Room {
    fn new(name: &'static str, path: Option<PathBuf>) -> Self {
        let there = path.as_deref().filter(|path| fs::is_folder(path));
        let free_bytes = there.and_then(|path| fs::free_bytes(path).ok());
        Self { name, path, free_bytes }
    }
}

/// The first non-empty value after `name` and a colon, as in `model name : Xeon`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name && !value.trim().is_empty()).then(|| value.trim())
    })
}
