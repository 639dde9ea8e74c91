//! How a process finds out that it is one of many, and how all of them end together.
//!
//! A process that only ended would leave the others waiting: an error ends all.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use signal_hook::consts::SIGTERM;
use signal_hook::flag;

use crate::config::DistributedConfig;
use crate::distributed::Ways;
use crate::distributed::World;
use crate::distributed::engine::Engine;
use crate::error::Problem;

/// Variables by which launchers tell a process how many there are.
const SIZE_VARIABLES: [&str; 4] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "WORLD_SIZE"];

/// An end of all processes takes no longer, or this one ends alone: the launcher ends the others.
const ABORT_PATIENCE: Duration = Duration::from_secs(3);

/// The exit code of a panic.
const PANICKED: u8 = 101;

/// Whether this build can be one of many.
pub const MPI: bool = cfg!(feature = "mpi");

/// The thread of this process that talks to others, once it has joined them.
static ENGINE: OnceLock<Engine> = OnceLock::new();

/// Takes what is worth telling of the exchange.
static TELL: OnceLock<fn(&str)> = OnceLock::new();

/// What the environment says of how many there are, and where.
fn told(variable: impl Fn(&str) -> Option<String>) -> Option<(&'static str, usize)> {
    let size = |name| variable(name).and_then(|v| v.trim().parse::<usize>().ok());
    SIZE_VARIABLES.into_iter().find_map(|name| size(name).filter(|&size| size > 1).map(|size| (name, size)))
}

impl World {
    /// This process alone; an error when the environment says that it is one of several.
    pub fn detect(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Problem> {
        let Some((name, size)) = told(variable) else { return Ok(Self::ALONE) };
        let of = format!("`{name}` says that this is one of {size} processes");
        let hint = format!("start one process, or unset `{name}` if the launcher sets it for a single one");
        Err(if MPI {
            Problem::usage(format!("{of}, and this command works in one")).hint(hint)
        } else {
            Problem::usage(format!("{of}, and this build trains in one"))
                .hint(format!("{hint}; for several, build with `--features mpi`"))
        })
    }

    /// All processes that were started with this one; what they exchange for a step arrives within the time of
    /// `config`, or they end.
    pub fn join(config: &DistributedConfig) -> Result<Self> {
        let timeout = config.timeout()?;
        let variable = |name: &str| std::env::var(name).ok();
        if !MPI || told(variable).is_none() {
            return Ok(Self::detect(variable)?);
        }
        if ENGINE.get().is_none() {
            // Not `get_or_init`: it has no errors.
            let _ = ENGINE.set(start(timeout)?);
        }
        let engine = ENGINE.get().expect("it was set just now");
        let (name, size) = told(variable).expect("it was told above");
        if engine.size() != size {
            return Err(Problem::usage(format!(
                "`{name}` says that this is one of {size} processes, MPI has {}",
                engine.size()
            ))
            .hint("start them by `mpirun`, or by `srun --mpi=pmix`, of the MPI that this program was built with")
            .into());
        }
        Ok(Self { rank: engine.rank(), size, engine: Some(engine), ways: Ways::of(config) })
    }
}

#[cfg(feature = "mpi")]
fn start(timeout: Duration) -> Result<Engine> {
    let tell = TELL.get().copied().unwrap_or(|_| {});
    Engine::start(crate::distributed::mpi::Mpi::join, timeout, tell)
}

#[cfg(not(feature = "mpi"))]
fn start(_: Duration) -> Result<Engine> {
    Err(Problem::new("this build has no MPI").into())
}

/// What is worth telling of the exchange goes to `tell` from here on.
pub fn tell_with(tell: fn(&str)) {
    let _ = TELL.set(tell);
}

/// Where there are other processes, this one says from here on in which step it was when a SIGTERM came while it
/// waited for them: a launcher that has lost one of them kills the rest so. That the signal kills a process is over
/// with this; what is done instead is up to the caller.
pub fn listen() -> Result<()> {
    let Some(engine) = ENGINE.get() else { return Ok(()) };
    flag::register(SIGTERM, engine.told_to_end()).context("cannot listen to SIGTERM")?;
    Ok(())
}

/// "rank 1 of 4, in step 12", where there are other processes.
pub fn place() -> Option<String> {
    ENGINE.get().map(Engine::place)
}

/// What stands before an error of this process, where there are others.
pub fn named() -> String {
    ENGINE.get().map_or_else(String::new, |engine| format!("rank {}: ", engine.rank()))
}

/// Leaves the others, where there are any, when they leave as well.
pub fn leave() {
    if let Some(engine) = ENGINE.get() {
        engine.leave();
    }
}

/// Ends all processes with this exit code, where there are others; else nothing is done.
pub fn abort(code: u8) {
    if let Some(engine) = ENGINE.get() {
        engine.abort(i32::from(code), ABORT_PATIENCE);
    }
}

/// Ends all processes when it is dropped by a panic.
#[derive(Debug)]
pub struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            abort(PANICKED);
        }
    }
}
