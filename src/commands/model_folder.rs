//! Finds the model folder that a command line names, and the columns that its model was trained on.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::commands::scoring_args::ColumnArgs;
use crate::commands::{staging, terminal};
use crate::interop::cached_folder;
use crate::tasks::labelled::TrainedColumns;

/// Returns the local folder for `path`: the folder itself, a download if it is a URL, or a folder in the
/// cache of the Hugging Face hub if it is a name there, with a note.
pub(super) fn resolve(path: &Path) -> Result<PathBuf> {
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

/// Returns the text columns that the model of a folder was trained on, if the folder records them. Prints a
/// note on how they combine with the columns on the command line.
pub(super) fn trained_columns(
    folder: &Path,
    named: &ColumnArgs,
    is_plain: bool,
) -> Result<Option<TrainedColumns>> {
    let trained = TrainedColumns::read(folder)?;
    let text = named.text_column.as_deref();
    let pair = named.text_pair_column.as_deref();
    if let Some(note) = trained.as_ref().and_then(|trained| trained.note(text, pair, is_plain)) {
        terminal::note(&terminal::printable(&note));
    }
    Ok(trained)
}
