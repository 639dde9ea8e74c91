//! Several processes of one run at the terminal: the first one tells how it goes, each has a log file, and
//! all must have been started alike.

use anyhow::Result;
use serde::Serialize;

use crate::commands::terminal;
use crate::config::RunSection;
use crate::config::to_yaml;
use crate::distributed::World;
use crate::error::Problem;
use crate::fs;
use crate::telemetry::Progress;
use crate::telemetry::log;

/// Where this process tells how the run of `config` goes; an error where it is not the run of all others.
pub(super) fn begin<C: Serialize>(
    world: World,
    config: &C,
    run: &RunSection,
    progress: Progress,
) -> Result<Progress> {
    if !world.is_shared() {
        return Ok(progress);
    }
    let version = env!("CARGO_PKG_VERSION").to_string();
    world.require_same(&[("the version", version), ("the configuration", to_yaml(config))])?;
    if run.upload_to.is_some() {
        return Err(Problem::usage("is for runs of one process, and this is one of several")
            .at("run.upload_to")
            .hint("remove it, and copy the folder of the run with a program of your own")
            .into());
    }
    if !world.is_first() || !log::is_open() {
        fs::create_folder(&run.output_dir)?;
        log::open(&run.output_dir.join(format!("rank-{}.log", world.rank)))?;
    }
    progress.note(&format!("{} processes train together", world.size));
    if world.is_first() {
        return Ok(progress);
    }
    terminal::set_quiet(true);
    Ok(Progress::lines(std::io::sink()))
}
