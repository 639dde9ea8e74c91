//! The folder of a model that a command line names.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;

use crate::commands::staging;
use crate::commands::terminal;
use crate::interop::cached_folder;

/// The folder itself, the one in the cache that a URL names, or the one that the cache of the Hugging Face hub
/// has by this name, which is told.
pub(super) fn named(path: &Path) -> Result<PathBuf> {
    Ok(match cached_folder(path) {
        Some(cached) => {
            let place = cached.display();
            terminal::note(&format!(
                "{}: taken from the cache of the Hugging Face hub, `{place}`",
                path.display()
            ));
            cached
        }
        None => staging::path(path)?,
    })
}
