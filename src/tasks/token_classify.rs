//! Token classification: tagged sentences -> labels -> windows -> batches -> model -> entities.
//!
//! `finetuning.rs` is the run, `data.rs` its batches and scores, `tagger.rs` a model with its labels,
//! `trained.rs` its evaluation and predictions. All other files handle sentences and do not know the model.

pub mod data;
pub mod finetuning;
pub mod labels;
pub mod report;
pub mod tagger;
mod trained;
pub mod windows;
mod words;

pub use finetuning::{Finetuning, TaggedExamples};
pub use labels::TagSet;
pub use tagger::Tagger;

use crate::models::TokenClassificationHead;
use crate::tasks::Supervised;

/// The task and its model.
pub type TokenClassify = Supervised<TokenClassificationHead>;
