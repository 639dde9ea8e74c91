//! What all runs of a command are trained with. It trains none.

use crate::distributed::World;
use crate::machine::Machine;
use crate::telemetry::Progress;
use crate::train::signals::Signals;

/// What all cells are trained with.
#[derive(Clone, Copy)]
pub struct Equipment<'a> {
    /// What is computed on.
    pub machine: &'a Machine,
    /// Takes what a user should know.
    pub progress: &'a Progress,
    /// Asks for an end.
    pub signals: &'a Signals,
    /// The processes that runs are dealt out to; one that trains all of them, or trains each together with others,
    /// is alone here.
    pub world: World,
}
