//! Classification with any number of labels a text: examples -> sets of labels -> batches -> model -> report.
//!
//! `finetuning.rs` is its run, `data.rs` the batches and scores of one, `thresholds.rs` what a probability
//! has to be above, `labeller.rs` a model in use. Texts are framed, cut and encoded as those of a classifier
//! are.

pub mod data;
pub mod finetuning;
pub mod labeller;
pub mod report;
pub mod thresholds;

pub use finetuning::Finetuning;
pub use finetuning::LabelledExamples;
pub use labeller::Labeller;
