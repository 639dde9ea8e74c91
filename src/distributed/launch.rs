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

/// Variables by which launchers number the processes of a machine.
const LOCAL_RANK_VARIABLES: [&str; 4] =
    ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "LOCAL_RANK"];

/// The last of the variables with a size: with it alone, processes meet by NCCL.
const WORLD_SIZE: &str = SIZE_VARIABLES[3];

/// An end of all processes takes no longer, or this one ends alone: the launcher ends the others.
const ABORT_PATIENCE: Duration = Duration::from_secs(3);

/// The exit code of a panic.
const PANICKED: u8 = 101;

/// Whether this build can be one of many.
pub const MPI: bool = cfg!(feature = "mpi");

/// Whether it can be one of many with GPUs.
pub const NCCL: bool = cfg!(feature = "nccl");

/// The thread of this process that talks to others, once it has joined them.
static ENGINE: OnceLock<Engine> = OnceLock::new();

/// Takes what is worth telling of the exchange.
static TELL: OnceLock<fn(&str)> = OnceLock::new();

/// What the environment says of how many there are, and where.
fn told(variable: impl Fn(&str) -> Option<String>) -> Option<(&'static str, usize)> {
    let size = |name| variable(name).and_then(|v| v.trim().parse::<usize>().ok());
    SIZE_VARIABLES.into_iter().find_map(|name| size(name).filter(|&size| size > 1).map(|size| (name, size)))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number(name: &str, variable: impl Fn(&str) -> Option<String>) -> Option<usize> {
    variable(name)?.trim().parse().ok()
}

/// Number of this process among those of its machine, from 0; 0 where it is alone.
pub fn local_rank() -> usize {
    let is_one_of_many = told(variable).is_some();
    let local = LOCAL_RANK_VARIABLES.into_iter().find_map(|name| number(name, variable));
    local.filter(|_| is_one_of_many).unwrap_or(0)
}

/// Whether variables alone say that there are others (`RANK`, `WORLD_SIZE`), which NCCL can do with.
pub fn has_no_launcher() -> bool {
    NCCL && told(variable).is_some_and(|(name, _)| name == WORLD_SIZE)
}

impl World {
    /// This process alone; an error when the environment says that it is one of several.
    pub fn detect(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Problem> {
        let Some((name, size)) = told(variable) else { return Ok(Self::ALONE) };
        let of = format!("`{name}` says that this is one of {size} processes");
        let hint = format!("start one process, or unset `{name}` if the launcher sets it for a single one");
        Err(if MPI || (NCCL && name == WORLD_SIZE) {
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
        let Some((name, size)) = told(variable).filter(|_| MPI) else { return Ok(Self::detect(variable)?) };
        let engine = engine(|| start(timeout))?;
        if engine.size() != size {
            return Err(Problem::usage(format!(
                "`{name}` says that this is one of {size} processes, MPI has {}",
                engine.size()
            ))
            .hint("start them by `mpirun`, or by `srun --mpi=pmix`, of the MPI that this program was built with")
            .into());
        }
        Ok(Self::of(engine, config))
    }

    /// The processes that `RANK` numbers of `WORLD_SIZE`, which meet by what `start` starts for one of them.
    #[cfg(feature = "nccl")]
    pub(super) fn by_variables(
        config: &DistributedConfig,
        start: impl FnOnce(usize, usize, Duration) -> Result<Engine>,
    ) -> Result<Self> {
        let (timeout, size) = (config.timeout()?, number(WORLD_SIZE, variable).unwrap_or(1));
        let rank = number("RANK", variable).filter(|&rank| rank < size).ok_or_else(|| {
            Problem::usage(format!("`{WORLD_SIZE}` is {size}, and `RANK` is no number below it")).hint(
                "give each process its `RANK`, and on each machine its `LOCAL_RANK`, from 0; or start them by \
                 `mpirun`, in a build with `--features mpi`",
            )
        })?;
        Ok(Self::of(engine(|| start(rank, size, timeout))?, config))
    }

    fn of(engine: &'static Engine, config: &DistributedConfig) -> Self {
        let (rank, size) = (engine.rank(), engine.size());
        Self { rank, size, engine: Some(engine), ways: Ways::of(config), on_gpus: false }
    }
}

/// The thread that talks to others, which is started once.
fn engine(start: impl FnOnce() -> Result<Engine>) -> Result<&'static Engine> {
    if ENGINE.get().is_none() {
        // Not `get_or_init`: it has no errors.
        let _ = ENGINE.set(start()?);
    }
    Ok(ENGINE.get().expect("it was set just now"))
}

/// Takes what the exchange has to say.
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

/// Sets in the environment what is to be other than an MPI has it, where nobody has set it.
///
/// # Safety
/// No other thread looks at the environment meanwhile.
pub unsafe fn set_preferences() {
    #[cfg(feature = "mpi")]
    // SAFETY: the caller's promise.
    unsafe {
        crate::distributed::mpi::set_preferences();
    }
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
