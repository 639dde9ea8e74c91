//! Masked language modelling: cross-entropy of the original tokens at the masked positions.
//!
//! `pretraining.rs` is its run, `data.rs` the batches and scores of one, `fill_mask.rs` what a model is used for.

pub mod data;
pub mod fill_mask;
pub mod pretraining;

use std::path::Path;

use anyhow::Result;
use candle_core::Device;

use crate::interop::read_folder;
use crate::models::MaskedLmHead;
use crate::models::Model;
use crate::tasks::Supervised;
use crate::tokenizer::Tokenizer;

pub use pretraining::Pretraining;

/// The task and its model.
pub type MaskedLm = Supervised<MaskedLmHead>;

impl MaskedLm {
    /// Loads a model folder in the Hugging Face layout, with its tokenizer.
    pub fn load(path: &Path, device: &Device) -> Result<(Self, Tokenizer)> {
        let folder = read_folder(path)?;
        let tokenizer = Tokenizer::load(path)?;
        let model = Model::masked_lm(&folder.config, 0, device)?;
        folder.fill(&model.parameters, false)?;
        Ok((Self { model }, tokenizer))
    }
}
