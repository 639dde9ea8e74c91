//! The folder of a model that a command line names.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;

use crate::commands::scoring_args::ColumnArgs;
use crate::commands::staging;
use crate::commands::terminal;
use crate::interop::cached_folder;
use crate::tasks::labelled::TrainedColumns;

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

/// The columns of texts that the model of a folder was trained on, if it tells them; what that means beside the
/// columns that are named is told.
pub(super) fn trained_columns(
    folder: &Path,
    named: &ColumnArgs,
    is_plain: bool,
) -> Result<Option<TrainedColumns>> {
    let trained = TrainedColumns::read(folder)?;
    let (text, pair) = (named.text_column.as_deref(), named.text_pair_column.as_deref());
    if let Some(note) = trained.as_ref().and_then(|trained| trained.note(text, pair, is_plain)) {
        terminal::note(&terminal::printable(&note));
    }
    Ok(trained)
}
