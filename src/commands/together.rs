//! Several processes of one run at the terminal: the first one tells how it goes, each has a log file, and
//! all must have been started alike.

use anyhow::Result;

use crate::commands::terminal;
use crate::config::RunSection;
use crate::distributed::World;
use crate::fs;
use crate::telemetry::Progress;
use crate::telemetry::log;

/// Where this process tells how the run of this configuration, as text, goes; an error where it is not the run of
/// all others.
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
