//! Where tests find real data.

use std::io::Write;
use std::path::PathBuf;

/// The folder of real data: `MLMTRAIN_DATA`, else `../shared/data` beside the project. Where it is absent,
/// says so.
pub(crate) fn real_data() -> Option<PathBuf> {
    let folder = std::env::var_os("MLMTRAIN_DATA")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/data")), PathBuf::from);
    if folder.join("text_en").is_dir() {
        return Some(folder);
    }
    // A closed stderr is no reason for a test to fail.
    let _ = writeln!(std::io::stderr(), "skipped: there is no real data in `{}`", folder.display());
    None
}
