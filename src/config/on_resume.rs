//! What a changed value means for a run that goes on; declared on the field of each key.

use serde::{Deserialize, Serialize};

/// What a changed value of a key means for a run that goes on. Keys without one need a new run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnResume {
    /// No number of the run changes.
    Free,
    /// The numbers of steps stay the same; the run evaluates, logs, saves or ends at other steps.
    Cadence,
    /// As `Cadence`, and the learning rate of each step changes.
    Length,
    /// An update is split into micro-batches in another way: free as long as an update has the same rows.
    Split,
    /// Gradients are exchanged in another way, as with another number of processes: free.
    Exchange,
}
