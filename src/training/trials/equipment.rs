//! The machine, progress, signals and processes that all runs of a command share. It trains nothing.

use crate::machine::Machine;
use crate::telemetry::Progress;
use crate::train::signals::Signals;
use model::distributed::World;

/// The shared surroundings of all cells of a command.
#[derive(Clone, Copy)]
pub struct Equipment<'a> {
    /// The device, threads and number types to compute with.
    pub machine: &'a Machine,
    /// Receives notes and warnings for the user.
    pub progress: &'a Progress,
    /// Reports signals that ask the command to stop.
    pub signals: &'a Signals,
    /// The processes that share the runs, each run on one process. [`World::ALONE`] if this process trains
    /// all of them, or if all processes train each run together.
    pub world: World,
}
