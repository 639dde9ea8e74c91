//! The foundation of mlmtrain: errors, files, random streams, scores, and the data of the families.
//!
//! It knows no tensor. The map of the whole program is the page of the crate `mlmtrain`.

pub mod error;
pub mod families;
pub mod fs;
pub mod pages;
pub mod quantity;
pub mod quietly;
pub mod rng;
pub mod scores;
pub mod secrets;
