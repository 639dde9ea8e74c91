//! Sequence classification: labelled files -> examples -> labels -> subset -> batches -> model -> report.
//!
//! `finetuning.rs` is its run, `data.rs` the batches and scores of one, `classifier.rs` what a model is used
//! for; everything else is about examples and knows no model.

pub mod classifier;
pub mod collate;
pub mod data;
pub mod finetuning;
pub mod labels;
pub mod read;
pub mod report;
pub mod rows;
pub mod subset;
pub mod texts;

pub use classifier::Classifier;
pub use classifier::TextPair;
pub use collate::Collator;
pub use collate::Encoded;
pub use collate::PairTemplate;
pub use collate::epoch_order;
pub use finetuning::Examples;
pub use finetuning::Finetuning;
pub use labels::LabelSet;
pub use read::Columns;
pub use read::Example;
pub use read::read_examples;
pub use report::PredictionRow;
pub use report::confusion_table;
pub use rows::RowFormat;
pub use subset::stratified;
pub use subset::subset_size;
pub use texts::InputText;
pub use texts::InputTexts;

use crate::models::ClassificationHead;
use crate::tasks::Supervised;

/// The task and its model.
pub type Classify = Supervised<ClassificationHead>;
