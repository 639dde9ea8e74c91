//! How gradients become updates: parameter groups and AdamW over the flat buffers, and the learning rate over the steps.
//!
//! Knows no loop and no file; its state goes out by `snapshot` and comes back by `restore`.

pub mod adamw;
pub mod schedule;

pub use adamw::AdamW;
