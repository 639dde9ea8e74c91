//! Where tests find real data.

use std::path::PathBuf;

#[path = "../../../tests/skipped/notes.rs"]
mod notes;

/// The folder of real data: `MLMTRAIN_DATA`, else `../shared/data` beside the project. Where it is absent,
/// says so.
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

/// Says that the test of this thread is skipped and why, now and at the end of `cargo test`.
#[track_caller]
pub fn skipped(reason: &str) {
    notes::skipped(reason);
}
