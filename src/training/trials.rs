//! Commands that consist of many runs: sweeps over hyper-parameters, learning curves, comparisons of models,
//! probes of a pretraining run, and tunings.
//!
//! A cell ([`cell`]) is one run in a folder of its own. Its [`record`] keeps the scores, so that a finished
//! cell is not trained again. This module prints nothing: commands print the lines of tables.

pub mod cell;
pub mod comparison;
pub mod curve;
mod equipment;
mod forecast;
mod grid_folder;
pub mod lanes;
mod means;
pub mod probes;
pub mod record;
mod summary;
pub mod sweep;
pub mod tune;

pub use cell::Cell;
pub use comparison::Comparison;
pub use equipment::Equipment;
pub use probes::Probes;
pub use record::Record;
