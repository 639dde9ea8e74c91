//! Token classification: tagged sentences -> labels -> windows -> batches -> model -> entities.
//!
//! `finetuning.rs` is its run, `data.rs` the batches and scores of one, `tagger.rs` a model with its labels,
//! `trained.rs` what it is used for; everything else is about sentences and knows no model.

pub mod data;
pub mod finetuning;
pub mod labels;
pub mod report;
pub mod tagger;
mod trained;
pub mod windows;
mod words;

pub use finetuning::Finetuning;
pub use finetuning::TaggedExamples;
pub use labels::TagSet;
pub use tagger::Tagger;

use crate::models::TokenClassificationHead;
use crate::tasks::Supervised;

/// The task and its model.
pub type TokenClassify = Supervised<TokenClassificationHead>;
