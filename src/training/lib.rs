//! Training: tasks with their examples and scores, the loop, many runs as one, and what is recorded of them.
//!
//! The documentation of the crate `mlmtrain` is the map of the whole program.

pub mod machine;
pub mod recipe;
pub mod tasks;
pub mod telemetry;
pub mod train;
pub mod trials;
