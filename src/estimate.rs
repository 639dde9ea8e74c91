//! Estimates of a run on a device before the device is rented: memory, time, energy, cost.
//!
//! `catalogue.rs` has the GPUs for rent, `work.rs` counts the work of a configuration, `cost.rs` puts the two
//! together, and `cluster.rs` combines many GPUs with the model of their network in `network.rs`. Nothing
//! here measures: callers pass the speed of this machine.

mod catalogue;
mod cluster;
mod cost;
mod network;
mod work;

#[cfg(test)]
mod tests;

pub use catalogue::{PRICES_AS_OF, Rentable};
pub use cluster::{Cluster, Clustered, Gradients};
pub use cost::{Estimate, Fitted, GPU_SHARE, Timed, gpu_seconds, update_bytes};
pub use network::{Exchange, Levers, WANTED_EFFICIENCY};
pub use work::{Part, Work};
