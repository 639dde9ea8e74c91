//! The output of several processes of one run: rank 0 reports progress, every other rank writes a log file.
//! All processes must have the same version and configuration.

use anyhow::Result;

use crate::commands::terminal;
use crate::config::RunSection;
use crate::distributed::World;
use crate::fs;
use crate::telemetry::{Progress, log};

/// Returns the progress of this process, which is silent on all ranks but 0. `configuration` returns the
/// configuration as text.
///
/// # Errors
/// Returns an error if the processes have different versions or configurations.
pub(super) fn begin(
    world: World,
    configuration: impl FnOnce() -> String,
    run: &RunSection,
    progress: Progress,
) -> Result<Progress> {
    if !world.is_shared() {
        return Ok(progress);
    }
    let version = env!("CARGO_PKG_VERSION").to_string();
    world.require_same(&[("the version", version), ("the configuration", configuration())])?;
    if !world.is_first() || !log::is_open() {
        fs::create_folder(&run.output_dir)?;
        log::open(&run.output_dir.join(format!("rank-{}.log", world.rank)))?;
    }
    progress.note(&format!("{} processes work together", world.size));
    if world.is_first() {
        return Ok(progress);
    }
    terminal::set_quiet(true);
    Ok(Progress::lines(std::io::sink()))
}
