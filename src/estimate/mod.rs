//! What a run takes on a device before it is rented: memory, time, energy, money.
//!
//! `catalogue.rs` knows the GPUs that people rent, `work.rs` counts what a configuration asks for, `cost.rs` puts
//! the two together, and `cluster.rs` many of them by what `network.rs` knows of their exchange. Nothing here
//! measures: the speed of this machine is brought along.

mod catalogue;
mod cluster;
mod cost;
mod network;
mod work;

#[cfg(test)]
mod tests;

pub use catalogue::PRICES_AS_OF;
pub use catalogue::Rentable;
pub use cluster::Cluster;
pub use cluster::Clustered;
pub use cluster::Gradients;
pub use cost::Estimate;
pub use cost::Fitted;
pub use cost::GPU_SHARE;
pub use cost::Timed;
pub use cost::UPDATE_BYTES;
pub use cost::gpu_seconds;
pub use network::Exchange;
pub use network::Levers;
pub use network::WANTED_EFFICIENCY;
pub use work::Part;
pub use work::Work;
