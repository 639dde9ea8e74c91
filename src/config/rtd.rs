//! The section `rtd`, replaced-token detection: the generator and the factors of the two losses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use base::families::{GeneratorSize, ModelConfig};

/// The generator, which fills in masked tokens for the model to tell from the original ones, and the weights
/// of both losses. Read for `task: replaced_token_detection` only; `mlm` says what is masked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RtdConfig {
    /// Width of the generator's hidden states; when absent a quarter of the model's, in whole attention heads
    /// of the model's size; of DeBERTa the model's.
    #[schemars(range(min = 1, max = 1 << 16))]
    pub generator_hidden_size: Option<usize>,
    /// Layers of the generator; as many as the model has when absent, of DeBERTa half of them.
    #[schemars(range(min = 1, max = 1 << 10))]
    pub generator_num_hidden_layers: Option<usize>,
    /// Attention heads of the generator; of the same size as the model's when absent.
    #[schemars(range(min = 1, max = 1 << 16))]
    pub generator_num_attention_heads: Option<usize>,
    /// Feed-forward width of the generator; in the model's proportion to its width when absent.
    #[schemars(range(min = 1, max = 1 << 18))]
    pub generator_intermediate_size: Option<usize>,
    /// Factor of the generator's loss.
    #[schemars(range(min = 0.0))]
    pub generator_weight: f64,
    /// Factor of the loss of telling replaced tokens.
    #[schemars(range(min = 0.0))]
    pub discriminator_weight: f64,
}

impl Default for RtdConfig {
    fn default() -> Self {
        Self {
            generator_hidden_size: None,
            generator_num_hidden_layers: None,
            generator_num_attention_heads: None,
            generator_intermediate_size: None,
            generator_weight: 1.0,
            discriminator_weight: 50.0,
        }
    }
}

impl RtdConfig {
    /// Returns the generator for a model: of the same family, with the same embeddings.
    pub fn generator(&self, model: &ModelConfig) -> ModelConfig {
        let shape = &model.encoder;
        let head = shape.head_size().max(1);
        let form = model.family.replaced_tokens;
        let (width, layers) = match form.map_or(GeneratorSize::QuarterOfWidth, |form| form.generator) {
            GeneratorSize::QuarterOfWidth => {
                ((shape.hidden_size / 4 / head).max(1) * head, shape.num_hidden_layers)
            }
            GeneratorSize::HalfOfDepth => (shape.hidden_size, shape.num_hidden_layers.div_ceil(2)),
        };
        let hidden = self.generator_hidden_size.unwrap_or(width);
        let heads = self.generator_num_attention_heads.unwrap_or((hidden / head).max(1));
        let proportion = shape.intermediate_size * hidden / shape.hidden_size.max(1);
        let mut generator = model.clone();
        if model.family.embedding_map.is_some() {
            generator.encoder.embedding_size = Some(shape.embedding_width());
        }
        generator.encoder.hidden_size = hidden;
        generator.encoder.num_hidden_layers = self.generator_num_hidden_layers.unwrap_or(layers);
        generator.encoder.num_attention_heads = heads;
        generator.encoder.intermediate_size = self.generator_intermediate_size.unwrap_or(proportion.max(1));
        generator
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::families::{EncoderConfig, Family};

    fn sizes(hidden_size: usize, num_attention_heads: usize, rtd: &RtdConfig) -> [usize; 4] {
        let encoder = EncoderConfig {
            embedding_size: Some(128),
            hidden_size,
            num_attention_heads,
            intermediate_size: 4 * hidden_size,
            ..EncoderConfig::of(Family::ELECTRA)
        };
        let generator = rtd.generator(&ModelConfig { family: Family::ELECTRA, encoder }).encoder;
        assert_eq!((generator.embedding_width(), generator.num_hidden_layers), (128, 12));
        [
            generator.hidden_size,
            generator.num_attention_heads,
            generator.head_size(),
            generator.intermediate_size,
        ]
    }

    #[test]
    fn the_generator_has_a_quarter_of_the_width_in_whole_heads() {
        let default = RtdConfig::default();
        assert_eq!(sizes(256, 4, &default), [64, 1, 64, 256]);
        assert_eq!(sizes(768, 12, &default), [192, 3, 64, 768]);
        assert_eq!(sizes(48, 2, &default), [24, 1, 24, 96]);
        let third = RtdConfig { generator_hidden_size: Some(256), ..default };
        assert_eq!(sizes(768, 12, &third), [256, 4, 64, 1024]);
    }
    #[test]
    fn the_generator_of_deberta_has_the_width_of_the_model_and_half_of_its_layers() {
        let model =
            ModelConfig { family: Family::DEBERTA_V2, encoder: EncoderConfig::of(Family::DEBERTA_V2) };
        let generator = RtdConfig::default().generator(&model).encoder;
        let wanted = EncoderConfig { num_hidden_layers: 6, ..model.encoder };
        assert_eq!(generator, wanted);
    }
}
