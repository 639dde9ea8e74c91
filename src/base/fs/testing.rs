//! The folder of real data for tests, and notes about skipped tests.

use std::path::PathBuf;

#[path = "../../../tests/skipped/notes.rs"]
mod notes;

/// The folder of real data: `MLMTRAIN_DATA`, else `../shared/data` next to the project. Without the data,
/// reports the test as skipped and returns `None`.
#[track_caller]
pub fn real_data() -> Option<PathBuf> {
    let folder = std::env::var_os("MLMTRAIN_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    if folder.join("text_en").is_dir() {
        return Some(folder);
    }
    skipped(&format!("there is no real data in `{}` (`MLMTRAIN_DATA`)", folder.display()));
    None
}

/// Reports that the test of this thread is skipped and why: now, and again at the end of `cargo test`.
#[track_caller]
pub fn skipped(reason: &str) {
    notes::skipped(reason);
}
