//! How a process finds out from its environment that it is one of several, and how all of them end together.
//!
//! If a process with an error only exited, the others would wait for it, so an error ends all of them.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result};
use signal_hook::consts::SIGTERM;
use signal_hook::flag;

use crate::distributed::engine::Engine;
use crate::distributed::{Ways, World};
use base::error::Problem;
use base::processes::Processes;
use config::DistributedConfig;

/// Variables in which launchers give the number of processes.
const SIZE_VARIABLES: [&str; 4] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "WORLD_SIZE"];

/// Variables in which launchers give the rank of a process among those on its machine.
const LOCAL_RANK_VARIABLES: [&str; 4] =
    ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "LOCAL_RANK"];

/// The last of [`SIZE_VARIABLES`]: if it is the only one set, processes connect by NCCL.
const WORLD_SIZE: &str = SIZE_VARIABLES[3];

/// Time to wait for an abort of all processes. After that this process exits alone, and the launcher ends the
/// others.
const ABORT_PATIENCE: Duration = Duration::from_secs(3);

/// Exit code of a panic.
const PANICKED: u8 = 101;

/// True if this build can run as one of several processes.
pub const MPI: bool = cfg!(feature = "mpi");

/// True if this build can run as one of several processes with GPUs.
pub const NCCL: bool = cfg!(feature = "nccl");

/// The communication thread of this process, once it has joined the other processes.
static ENGINE: OnceLock<Engine> = OnceLock::new();

/// Function that gets the messages of the communication thread.
static TELL: OnceLock<fn(&str)> = OnceLock::new();

/// The variable by which a launcher says that there are several processes, and their number.
fn announced_size(variable: impl Fn(&str) -> Option<String>) -> Option<(&'static str, usize)> {
    SIZE_VARIABLES.into_iter().find_map(|name| {
        let size = number(name, &variable).filter(|&size| size > 1)?;
        Some((name, size))
    })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number(name: &str, variable: impl Fn(&str) -> Option<String>) -> Option<usize> {
    variable(name)?.trim().parse().ok()
}

/// Rank of this process among those on its machine, from 0; 0 if it is the only process.
pub fn local_rank() -> usize {
    let is_one_of_many = announced_size(variable).is_some();
    let local = LOCAL_RANK_VARIABLES.into_iter().find_map(|name| number(name, variable));
    local.filter(|_| is_one_of_many).unwrap_or(0)
}

/// True if only `WORLD_SIZE` says that there are other processes, without a launcher; NCCL can connect those.
pub fn has_no_launcher() -> bool {
    NCCL && announced_size(variable).is_some_and(|(name, _)| name == WORLD_SIZE)
}

impl World {
    /// Returns a world of this process alone, or an error if the environment says that this is one of several
    /// processes.
    pub fn detect(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Problem> {
        let Some((name, size)) = announced_size(variable) else { return Ok(Self::ALONE) };
        let problem = format!("`{name}` says that this is one of {size} processes");
        let hint = format!("start one process, or unset `{name}` if the launcher sets it for a single one");
        Err(if MPI || (NCCL && name == WORLD_SIZE) {
            Problem::usage(format!("{problem}, and this command works in one")).hint(hint)
        } else {
            Problem::usage(format!("{problem}, and this build trains in one"))
                .hint(format!("{hint}; for several, build with `--features mpi`"))
        })
    }

    /// Joins all processes that were started with this one. The values they exchange for a step have to
    /// arrive within the timeout of `config`; otherwise they end.
    pub fn join(config: &DistributedConfig) -> Result<Self> {
        let timeout = config.timeout()?;
        let Some((name, size)) = announced_size(variable).filter(|_| MPI) else {
            return Ok(Self::detect(variable)?);
        };
        let engine = engine(|| start(timeout))?;
        if engine.size() != size {
            return Err(Problem::usage(format!(
                "`{name}` says that this is one of {size} processes, MPI has {}",
                engine.size()
            ))
            .hint("start them by `mpirun`, or by `srun --mpi=pmix`, of the MPI that this program was built with")
            .into());
        }
        Ok(Self::from_engine(engine, config))
    }

    /// Joins the `WORLD_SIZE` processes that are numbered by `RANK`; `start` starts the communication thread
    /// of this one, given its rank, the number of processes and the timeout.
    #[cfg(feature = "nccl")]
    pub(super) fn by_variables(
        config: &DistributedConfig,
        start: impl FnOnce(usize, usize, Duration) -> Result<Engine>,
    ) -> Result<Self> {
        let timeout = config.timeout()?;
        let size = number(WORLD_SIZE, variable).unwrap_or(1);
        let rank = number("RANK", variable).filter(|&rank| rank < size).ok_or_else(|| {
            Problem::usage(format!("`{WORLD_SIZE}` is {size}, and `RANK` is no number below it")).hint(
                "give each process its `RANK`, and on each machine its `LOCAL_RANK`, from 0; or start them by \
                 `mpirun`, in a build with `--features mpi`",
            )
        })?;
        Ok(Self::from_engine(engine(|| start(rank, size, timeout))?, config))
    }

    fn from_engine(engine: &'static Engine, config: &DistributedConfig) -> Self {
        let ways = Ways::from_config(config);
        let processes = Processes::new(engine.rank(), engine.size(), engine);
        Self { processes, engine: Some(engine), ways, on_gpus: false }
    }
}

/// Starts the communication thread at the first call; later calls return the same one.
fn engine(start: impl FnOnce() -> Result<Engine>) -> Result<&'static Engine> {
    if ENGINE.get().is_none() {
        // Not `get_or_init`: its closure cannot fail.
        let _ = ENGINE.set(start()?);
    }
    Ok(ENGINE.get().expect("it was set just now"))
}

/// Function that takes the messages of the communication thread.
#[cfg(any(feature = "mpi", feature = "nccl"))]
pub(super) fn teller() -> fn(&str) {
    TELL.get().copied().unwrap_or(|_| {})
}

#[cfg(feature = "mpi")]
fn start(timeout: Duration) -> Result<Engine> {
    Engine::start(crate::distributed::mpi::Mpi::join, timeout, teller())
}

#[cfg(not(feature = "mpi"))]
fn start(_: Duration) -> Result<Engine> {
    Err(Problem::new("this build has no MPI").into())
}

/// Sets the environment variables by which this program changes MPI's defaults, unless the user has set them.
///
/// # Safety
/// No other thread reads or writes the environment during the call.
pub unsafe fn set_preferences() {
    #[cfg(feature = "mpi")]
    // SAFETY: the caller guarantees it.
    unsafe {
        crate::distributed::mpi::set_preferences();
    }
}

/// Sends the messages of the communication thread to `tell` from now on.
pub fn tell_with(tell: fn(&str)) {
    let _ = TELL.set(tell);
}

/// Handles SIGTERM if there are other processes: the communication thread then reports in which step the
/// signal came while this process waited for the others, since a launcher that has lost one process ends the
/// rest this way. After this call the signal no longer kills the process by itself; the caller decides what
/// happens instead.
pub fn listen() -> Result<()> {
    let Some(engine) = ENGINE.get() else { return Ok(()) };
    flag::register(SIGTERM, engine.end_signal_flag()).context("cannot listen to SIGTERM")?;
    Ok(())
}

/// Text such as "rank 1 of 4, in step 12", if there are other processes.
pub fn place() -> Option<String> {
    ENGINE.get().map(Engine::place)
}

/// Prefix for an error of this process, such as "rank 1: ", if there are other processes; else empty.
pub fn named() -> String {
    ENGINE.get().map_or_else(String::new, |engine| format!("rank {}: ", engine.rank()))
}

/// Waits until all processes leave, if there are others.
pub fn leave() {
    if let Some(engine) = ENGINE.get() {
        engine.leave();
    }
}

/// Ends all processes with this exit code; does nothing if there are no others.
pub fn abort(code: u8) {
    if let Some(engine) = ENGINE.get() {
        engine.abort(i32::from(code), ABORT_PATIENCE);
    }
}

/// Guard that ends all processes when a panic drops it.
#[derive(Debug)]
pub struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            abort(PANICKED);
        }
    }
}
