//! What there is of a machine, and what a run would take of it: what `mlmtrain doctor` tells.
//!
//! Everything that cannot be found out is `None`; nothing here fails. What comes from files is read below a
//! folder that stands for `/`, so that tests can make up machines.

mod gpus;
mod memory;
mod processor;
mod run;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::path::PathBuf;

use serde::Serialize;

use crate::fs;
use crate::ops::cuda::libraries::DRIVER;
use crate::ops::cuda::libraries::Origin;
use crate::ops::cuda::libraries::Places;

pub use gpus::Gpus;
pub use memory::Memory;
pub use processor::Processor;
pub use processor::Product;
pub use run::Run;

/// A machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Survey {
    /// This program's.
    pub version: &'static str,
    /// What computes.
    pub processor: Processor,
    /// Where tensors lie.
    pub memory: Memory,
    /// NVIDIA's.
    pub gpus: Gpus,
    /// What a GPU needs to be used.
    pub cuda_libraries: Libraries,
    /// Where files could be written.
    pub disk: Vec<Room>,
    /// What a run would take of it all.
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
            processor: Processor::below(root),
            memory: Memory::below(root),
            gpus: Gpus::below(root),
            cuda_libraries: Libraries::of(&Places::here()),
            disk: folders.into_iter().map(|(name, path)| Room::of(name, path)).collect(),
            run: Run::by_default(),
        }
    }
}

/// Where the libraries of CUDA are, and where they were looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Libraries {
    /// By name.
    pub found: Vec<Library>,
    /// Folders in their order.
    pub looked_in: Vec<Looked>,
}

/// A library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Library {
    /// Its file.
    pub name: &'static str,
    /// Where it lies; `None` where it is nowhere.
    pub path: Option<PathBuf>,
}

/// Folders of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Looked {
    /// Why they are looked at.
    pub because: &'static str,
    /// With a star where there is no folder that fits it.
    pub folders: Vec<PathBuf>,
}

impl Libraries {
    fn of(places: &Places) -> Self {
        let driver = std::iter::once((DRIVER, places.driver()));
        let looked = |origin: Origin| Looked {
            because: origin.title(),
            folders: places
                .iter()
                .filter(|place| place.origin == origin)
                .map(|place| place.folder.clone())
                .collect(),
        };
        Self {
            found: driver.chain(places.found()).map(|(name, path)| Library { name, path }).collect(),
            looked_in: Origin::ALL.into_iter().map(looked).collect(),
        }
    }
}

/// A folder, and what may still be written there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Room {
    /// What it is to this process.
    pub name: &'static str,
    /// Where it is.
    pub path: Option<PathBuf>,
    /// What is left.
    pub free_bytes: Option<u64>,
}

impl Room {
    fn of(name: &'static str, path: Option<PathBuf>) -> Self {
        let there = path.as_deref().filter(|path| fs::is_folder(path));
        let free_bytes = there.and_then(|path| fs::free_bytes(path).ok());
        Self { name, path, free_bytes }
    }
}

/// What stands behind a name and a colon, as in `model name : Xeon`: the first that is not empty.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name && !value.trim().is_empty()).then(|| value.trim())
    })
}
