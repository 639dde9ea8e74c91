//! The effect of a changed value on a resumed run, which the field of each key declares.

use serde::{Deserialize, Serialize};

/// Effect of a changed value on a resumed run. A key without one needs a new run.
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
