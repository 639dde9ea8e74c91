//! The foundation of mlmtrain: errors, files, random streams, scores, and descriptions of the model families.
//!
//! Nothing here uses tensors. The documentation of the crate `mlmtrain` is the map of the whole program.

pub mod error;
pub mod families;
pub mod fs;
pub mod pages;
pub mod quantity;
pub mod quietly;
pub mod rng;
pub mod scores;
pub mod secrets;
