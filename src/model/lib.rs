//! The model and what changes its parameters: layers, encoders and heads, optimizers, number types, files of
//! weights, and the exchange of gradients between processes.
//!
//! Knows no text and no training loop. The documentation of the crate `mlmtrain` is the map of the whole
//! program.

pub mod checkpoint;
pub mod distributed;
pub mod interop;
pub mod layers;
pub mod models;
pub mod optim;
pub mod precision;
