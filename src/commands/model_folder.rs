//! The folder of a model that a command line names.

use std::path::Path;
use std::path::PathBuf;

use crate::commands::terminal;
use crate::interop::cached_folder;

/// The folder itself, or the one that the cache of the Hugging Face hub has by this name, which is told.
pub(super) fn named(path: &Path) -> PathBuf {
    match cached_folder(path) {
        Some(cached) => {
            let place = cached.display();
            terminal::note(&format!(
                "{}: taken from the cache of the Hugging Face hub, `{place}`",
                path.display()
            ));
            cached
        }
        None => path.to_path_buf(),
    }
}
