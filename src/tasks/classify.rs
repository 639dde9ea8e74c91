//! Sequence classification: examples -> labels -> batches -> model -> report.
//!
//! `finetuning.rs` is the run, `data.rs` its batches and scores, `sequence.rs` the code shared with other
//! tasks over whole texts, `classifier.rs` a model with its labels, `trained.rs` its evaluation and
//! predictions. All other files handle examples and do not know the model.

pub mod classifier;
pub mod collate;
pub mod data;
pub mod finetuning;
pub mod labels;
pub mod report;
pub(in crate::tasks) mod sequence;
mod trained;

pub use classifier::Classifier;
pub use collate::{Collator, Encoded};
pub use finetuning::{Examples, Finetuning};
pub use labels::LabelSet;
pub use report::{PredictionRow, confusion_table};

use crate::models::ClassificationHead;
use crate::tasks::Supervised;

/// The task and its model.
pub type Classify = Supervised<ClassificationHead>;
