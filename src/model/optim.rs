//! From gradients to updates: update rules over the flat buffers, parameter groups, and the learning rate
//! schedule.
//!
//! Knows no training loop and no file; its state is saved with `snapshot` and loaded with `restore`.

mod groups;
mod optimizer;
mod rule;
mod rule_state;
pub mod schedule;
mod shards;

pub use groups::first_trained;
pub use optimizer::Optimizer;
pub use rule::{checkpoint_bytes, state_names, state_values, temporary_bytes, update_flops};
