//! Classification with any number of labels per text: examples -> sets of labels -> batches -> model ->
//! report.
//!
//! `finetuning.rs` is the run, `data.rs` its batches and scores, `thresholds.rs` the probability above which
//! a label is predicted, `labeller.rs` a trained model. Texts are tokenized and truncated as for a
//! classifier.

pub mod data;
pub mod finetuning;
pub mod labeller;
pub mod report;
pub mod thresholds;

pub use finetuning::{Finetuning, LabelledExamples};
pub use labeller::Labeller;
