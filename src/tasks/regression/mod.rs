//! Regression: texts with numbers -> batches -> model -> errors and correlations.
//!
//! `finetuning.rs` is its run, `data.rs` the batches and scores of one, `regressor.rs` a model in use. Texts
//! are framed, cut and encoded as those of a classifier are.

pub mod data;
pub mod finetuning;
pub mod regressor;
pub mod scores;

pub use finetuning::Finetuning;
pub use finetuning::NumberExamples;
pub use regressor::Regressor;
