//! The foundation of mlmtrain: errors, files, random streams, scores, descriptions of the model families, and
//! what the processes of a run share.
//!
//! Nothing here uses tensors. The documentation of the crate `mlmtrain` is the map of the whole program.

pub mod error;
pub mod families;
pub mod fs;
pub mod instructions;
pub mod pages;
pub mod processes;
pub mod quantity;
pub mod quietly;
pub mod rng;
pub mod scores;
pub mod sealed;
pub mod secrets;
pub mod words;
