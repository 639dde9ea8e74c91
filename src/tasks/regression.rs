//! Regression: texts with numbers -> batches -> model -> errors and correlations.
//!
//! `finetuning.rs` is the run, `data.rs` its batches and scores, `regressor.rs` a trained model. Texts are
//! tokenized and truncated as for a classifier.

pub mod data;
pub mod finetuning;
pub mod regressor;
pub mod scores;

pub use finetuning::{Finetuning, NumberExamples};
pub use regressor::Regressor;
