//! One encoder for all families, and heads on top of it.
//!
//! Knows no file, no batch and no device: it takes ids and segments, and gives hidden states and gradients.
//! What differs between families stands in `families/`, one file each.

pub mod encoder;
pub mod families;
pub mod flops;
pub mod heads;
pub mod memory;

use candle_core::DType;
use candle_core::Device;
use candle_core::Result;

use crate::config::ModelConfig;
use crate::layers::Parameters;
use crate::layers::Registry;

pub use crate::layers::embeddings::TokenIds;
pub use encoder::Encoder;
pub use heads::Head;
pub use heads::Targets;
pub use heads::masked_lm::MaskedLmHead;
pub use heads::sequence_classification::ClassificationHead;

/// An encoder with the head of a task, and the values of all their parameters.
#[derive(Debug)]
pub struct Model<H> {
    /// Family and shape.
    pub config: ModelConfig,
    /// The encoder.
    pub encoder: Encoder,
    /// What turns hidden states into predictions.
    pub head: H,
    /// Values of encoder and head.
    pub parameters: Parameters,
}

impl Model<MaskedLmHead> {
    /// A masked language model with initial values drawn from `seed`.
    pub fn masked_lm(config: &ModelConfig, seed: u64, device: &Device) -> Result<Self> {
        Self::build(config, seed, device, |registry, encoder| {
            families::masked_lm_head(registry, config, encoder)
        })
    }
}

impl Model<ClassificationHead> {
    /// A sequence classifier with initial values drawn from `seed`.
    pub fn classifier(config: &ModelConfig, num_labels: usize, seed: u64, device: &Device) -> Result<Self> {
        Self::build(config, seed, device, |registry, _| {
            families::classification_head(registry, config, num_labels)
        })
    }
}

impl<H> Model<H> {
    /// The same model computing in `dtype`; its parameters stay f32.
    pub fn computing_in(self, dtype: DType) -> Result<Self> {
        Ok(Self { parameters: self.parameters.computing_in(dtype)?, ..self })
    }

    fn build(
        config: &ModelConfig,
        seed: u64,
        device: &Device,
        head: impl FnOnce(&mut Registry, &Encoder) -> H,
    ) -> Result<Self> {
        let mut registry = Registry::default();
        let encoder = Encoder::new(&mut registry, config);
        let head = head(&mut registry, &encoder);
        let parameters =
            Parameters::initialise(registry.layout(), config.encoder.initializer_range, seed, device)?;
        Ok(Self { config: config.clone(), encoder, head, parameters })
    }
}
