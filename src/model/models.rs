//! One encoder for all families, and the heads on top of it.
//!
//! Independent of files, batches and devices: the input are ids and segments, the output hidden states and
//! gradients. A [`Blueprint`] is a model without values, from which sizes, memory and the tensors of its
//! files follow.

pub mod encoder;
pub mod heads;
mod initial;
pub mod memory;
pub mod pair;

use candle_core::{DType, Device, Result};

use crate::layers::norm::Norm;
use crate::layers::{Layout, Parameters, Part, Registry};
use base::families::{HiddenAct, ModelConfig, NormKind, ReplacedTokens};
use ops::activation::Function;
use ops::layer_norm::Form;

pub use crate::layers::embeddings::TokenIds;
pub use encoder::Encoder;
pub use heads::masked_lm::MaskedLmHead;
pub use heads::replaced_tokens::ReplacedTokenHead;
pub use heads::sentence_pairs::SentencePairHeads;
pub use heads::sequence_classification::{ClassificationHead, Objective};
pub use heads::token_classification::TokenClassificationHead;
pub use heads::{Head, Targets};
pub use pair::{Pair, PairBlueprint};

/// The function of a configuration's `hidden_act`.
fn activation_function(hidden_act: HiddenAct) -> Function {
    match hidden_act {
        HiddenAct::Gelu => Function::Gelu,
        HiddenAct::GeluNew => Function::GeluTanh,
    }
}

/// Registers a norm of `size` values in the form of the family.
fn norm(registry: &mut Registry, config: &ModelConfig, name: &str, size: usize) -> Norm {
    let form = match config.family.norm {
        NormKind::LayerNorm => Form::LayerNorm,
        NormKind::RmsNorm => Form::RmsNorm,
    };
    Norm::new(registry, name, size, form, config.encoder.layer_norm_eps, config.family.has_biases)
}

/// As [`Model::flops`].
fn flops(encoder: &Encoder, head: &impl Head, tokens: f64, mean_length: f64, targets: f64) -> f64 {
    let read = if head.chooses() { targets } else { tokens };
    encoder.flops(tokens, mean_length, read) + head.flops(targets)
}

/// An encoder with the head of a task, before its parameters have values.
#[derive(Debug, Clone)]
pub struct Blueprint<H> {
    /// Family and shape.
    pub config: ModelConfig,
    /// The encoder.
    pub encoder: Encoder,
    /// Turns hidden states into predictions.
    pub head: H,
    /// All parameters of both.
    pub layout: Layout,
}

impl Blueprint<()> {
    /// An encoder without a head.
    pub fn encoder_alone(config: &ModelConfig) -> Self {
        Self::new(config, |_, _| ())
    }
}

impl Blueprint<MaskedLmHead> {
    /// A masked language model, its decoder tied to the word embedding in most families.
    pub fn masked_lm(config: &ModelConfig) -> Self {
        Self::new(config, |registry, encoder| {
            encoder.decode_masks(registry, config);
            MaskedLmHead::new(registry, config, encoder.embeddings.word)
        })
    }
}

impl Blueprint<SentencePairHeads> {
    /// A masked language model that also classifies pairs of segments; an error for a family without a head
    /// for it.
    pub fn sentence_pairs(config: &ModelConfig) -> Result<Self> {
        let Some(names) = config.family.sentence_pairs else {
            candle_core::bail!("{} has no head that tells pairs of segments", config.family.title)
        };
        Ok(Self::new(config, |registry, encoder| {
            SentencePairHeads::new(registry, config, names, encoder.embeddings.word)
        }))
    }
}

impl Blueprint<ReplacedTokenHead> {
    /// A discriminator without its generator.
    pub fn replaced_tokens(config: &ModelConfig, names: ReplacedTokens) -> Self {
        Self::new(config, |registry, _| ReplacedTokenHead::new(registry, config, names))
    }
}

impl Blueprint<ClassificationHead> {
    /// A sequence classifier.
    pub fn classifier(config: &ModelConfig, num_labels: usize) -> Self {
        Self::new(config, |registry, _| ClassificationHead::new(registry, config, num_labels))
    }
}

impl Blueprint<TokenClassificationHead> {
    /// A token classifier; an error for a family that has none.
    pub fn token_classifier(config: &ModelConfig, num_labels: usize) -> Result<Self> {
        let Some(name) = config.family.token_classifier else {
            candle_core::bail!("no token classifier is built for {:?}", config.family)
        };
        Ok(Self::new(config, |registry, _| TokenClassificationHead::new(registry, config, name, num_labels)))
    }
}

impl<H: Head> Blueprint<H> {
    /// Floating-point operations of forward and backward, as [`Model::flops`] counts them.
    pub fn flops(&self, tokens: f64, mean_length: f64, targets: f64) -> f64 {
        flops(&self.encoder, &self.head, tokens, mean_length, targets)
    }
}

impl<H> Blueprint<H> {
    fn new(config: &ModelConfig, head: impl FnOnce(&mut Registry, &mut Encoder) -> H) -> Self {
        let mut registry = Registry::default();
        let mut encoder = Encoder::new(&mut registry, config);
        let head = head(&mut registry, &mut encoder);
        Self { config: config.clone(), encoder, head, layout: registry.layout() }
    }

    /// The model with initial values drawn from `seed`.
    pub fn initialise(self, seed: u64, device: &Device) -> Result<Model<H>> {
        let range = self.config.encoder.initializer_range;
        self.with_parameters(|layout| Parameters::initialise(layout, range, seed, device))
    }

    /// As [`Self::initialise`], but only the head has initial values: the encoder is zero, for values from a
    /// folder.
    pub fn initialise_head(self, seed: u64, device: &Device) -> Result<Model<H>> {
        let range = self.config.encoder.initializer_range;
        self.with_parameters(|layout| {
            Parameters::initialise_some(layout, range, seed, device, |spec| spec.part == Part::Head)
        })
    }

    /// The model with all parameters zero, for values from a folder.
    pub fn zeros(self, device: &Device) -> Result<Model<H>> {
        self.with_parameters(|layout| Parameters::zeros(layout, device))
    }

    fn with_parameters(self, parameters: impl FnOnce(Layout) -> Result<Parameters>) -> Result<Model<H>> {
        let Self { config, encoder, head, layout } = self;
        Ok(Model { config, encoder, head, parameters: parameters(layout)? })
    }
}

/// An encoder with the head of a task, and the values of all their parameters.
#[derive(Debug)]
pub struct Model<H> {
    /// Family and shape.
    pub config: ModelConfig,
    /// The encoder.
    pub encoder: Encoder,
    /// Turns hidden states into predictions.
    pub head: H,
    /// Values of encoder and head.
    pub parameters: Parameters,
}

impl Model<MaskedLmHead> {
    /// A masked language model with initial values drawn from `seed`.
    pub fn masked_lm(config: &ModelConfig, seed: u64, device: &Device) -> Result<Self> {
        Blueprint::masked_lm(config).initialise(seed, device)
    }
}

impl Model<ClassificationHead> {
    /// A sequence classifier with initial values drawn from `seed`.
    pub fn classifier(config: &ModelConfig, num_labels: usize, seed: u64, device: &Device) -> Result<Self> {
        Blueprint::classifier(config, num_labels).initialise(seed, device)
    }
}

impl Model<TokenClassificationHead> {
    /// A token classifier with initial values drawn from `seed`.
    pub fn token_classifier(
        config: &ModelConfig,
        num_labels: usize,
        seed: u64,
        device: &Device,
    ) -> Result<Self> {
        Blueprint::token_classifier(config, num_labels)?.initialise(seed, device)
    }
}

impl<H> Model<H> {
    /// The same model computing in `dtype`; its parameters stay f32.
    pub fn computing_in(self, dtype: DType) -> Result<Self> {
        Ok(Self { parameters: self.parameters.computing_in(dtype)?, ..self })
    }
}

impl<H: Head> Model<H> {
    /// Floating-point operations of forward and backward over `tokens` tokens in segments of mean length
    /// `mean_length`, of which `targets` rows reach the head.
    pub fn flops(&self, tokens: f64, mean_length: f64, targets: f64) -> f64 {
        flops(&self.encoder, &self.head, tokens, mean_length, targets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::families::{EncoderConfig, Family, named_model};
    use candle_core::Tensor;

    fn classifier() -> Blueprint<ClassificationHead> {
        Blueprint::classifier(&named_model("tiny").unwrap(), 3)
    }

    fn values(tensor: &Tensor) -> Vec<f32> {
        tensor.flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn of_a_model_that_is_filled_from_a_folder_only_the_head_has_initial_values() {
        let whole = classifier().initialise(7, &Device::Cpu).unwrap().parameters;
        let head = classifier().initialise_head(7, &Device::Cpu).unwrap().parameters;
        let zeros = classifier().zeros(&Device::Cpu).unwrap().parameters;
        let mut drawn = 0;
        let (whole, head) = (whole.named().unwrap(), head.named().unwrap());
        for ((spec, (name, all)), (_, some)) in zeros.layout().specs().zip(&whole).zip(&head) {
            assert_eq!(&spec.name, name);
            if spec.part == Part::Head {
                assert_eq!(values(some), values(all), "{name}");
                drawn += usize::from(values(all).iter().any(|value| *value != 0.0));
            } else {
                assert!(values(some).iter().all(|value| *value == 0.0), "{name}");
            }
        }
        assert!(drawn > 0, "a weight of the head is drawn");
        assert!(values(zeros.flat()).iter().all(|value| *value == 0.0));
    }

    #[test]
    fn roberta_base_at_8_by_128_takes_the_545_gflop_of_the_floor() {
        let encoder = EncoderConfig { vocab_size: 50_265, ..EncoderConfig::of(Family::ROBERTA) };
        let base = Blueprint::masked_lm(&ModelConfig { family: Family::ROBERTA, encoder });
        let flops = base.flops(1024.0, 128.0, 153.0);
        // 6 x weights x rows, and 12 x L x T x length x D for attention. After its attention, which has a
        // quarter of its weights, the last layer computes only the masked rows.
        let layer = 12.0 * 768.0 * 768.0;
        let head = 768.0 * (768.0 + 50_265.0);
        let layers = layer * (11.25 * 1024.0 + 0.75 * 153.0);
        let by_hand: f64 = 6.0 * layers + 12.0 * 12.0 * 1024.0 * 128.0 * 768.0 + 6.0 * head * 153.0;
        assert!((flops / by_hand - 1.0).abs() < 1e-12);
        assert!((flops / 1e9 - 545.0).abs() < 6.0, "{}", flops / 1e9);
    }

    /// Of 22 layers, 8 attend to all of 1,024 tokens, 14 to 64 tokens on either side.
    #[test]
    fn a_local_layer_of_modernbert_costs_only_its_window() {
        let config = named_model("modernbert-base").unwrap();
        let base = Blueprint::masked_lm(&config);
        let maps = 22.0 * (4.0 * 768.0 + 3.0 * 1152.0) * 768.0;
        let attention = 8.0 * 1024.0 + 14.0 * 129.0;
        let by_hand: f64 = 6.0 * maps + 12.0 * attention * 768.0;
        assert!((base.encoder.flops(1.0, 1024.0, 1.0) / by_hand - 1.0).abs() < 1e-12);
        // The number of the published model.
        assert_eq!(base.layout.num_elements(), 149_655_232);
    }

    /// Tokens in segments of 128 have scores with 255 of the 512 relative positions, in both directions.
    #[test]
    fn a_layer_of_deberta_costs_its_scores_with_positions() {
        let base = Blueprint::masked_lm(&named_model("deberta-v3-base").unwrap());
        let maps = 12.0 * 12.0 * 768.0 * 768.0;
        let met = 12.0 * (2.0 * 128.0 + 2.0 * 255.0);
        let by_hand: f64 = 6.0 * maps + 6.0 * met * 768.0;
        assert!((base.encoder.flops(1.0, 128.0, 1.0) / by_hand - 1.0).abs() < 1e-12);
        // The number of `DebertaV2ForMaskedLM` of transformers.
        assert_eq!(base.layout.num_elements(), 184_551_780);
    }

    /// Twelve layers are computed with the parameters of one.
    #[test]
    fn layers_of_albert_cost_each_and_share_their_parameters() {
        let base = Blueprint::masked_lm(&named_model("albert-base").unwrap());
        let maps = 12.0 * 12.0 * 768.0 * 768.0;
        let map = 128.0 * 768.0;
        let by_hand: f64 = 6.0 * (maps + map) + 12.0 * 12.0 * 128.0 * 768.0;
        assert!((base.encoder.flops(1.0, 128.0, 1.0) / by_hand - 1.0).abs() < 1e-12);
        // The number of `AlbertForMaskedLM` of transformers.
        assert_eq!(base.layout.num_elements(), 11_221_680);
    }

    #[test]
    fn a_bias_of_attention_is_one_table_for_all_layers() {
        let base = Blueprint::masked_lm(&named_model("mpnet-base").unwrap());
        // The number of `MPNetForMaskedLM` of transformers.
        assert_eq!(base.layout.num_elements(), 109_518_527);
    }
}
