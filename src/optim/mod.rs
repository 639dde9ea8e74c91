//! How gradients become updates: AdamW and LAMB over the flat buffers, parameter groups, and the learning
//! rate over the steps.
//!
//! Knows no loop and no file; its state goes out by `snapshot` and comes back by `restore`.

mod groups;
mod optimizer;
pub mod schedule;
mod shards;

pub use groups::first_trained;
pub use optimizer::Optimizer;
