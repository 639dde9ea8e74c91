//! A generator and a discriminator that share embeddings, trained in one step (Clark et al. 2020).
//!
//! If they share all embeddings, these are parameters of the discriminator, which a backward pass reaches
//! last. With disentangled sharing, the generator has its own embeddings, and the discriminator's word
//! embedding is a difference that is added to the generator's.

use std::ops::Add;

use candle_core::{DType, Device, Result};

use crate::layers::{Layout, Parameters, Registry};
use crate::models::memory::{Outline, Prediction, StepSizes, activations, state_bytes};
use crate::models::{Encoder, Head, MaskedLmHead, ReplacedTokenHead};
use base::families::{EmbeddingSharing, ModelConfig, ReplacedTokens};

/// Number of the discriminator in a run.
pub const DISCRIMINATOR: u8 = 0;
/// Number of the generator in a run.
pub const GENERATOR: u8 = 1;

const DISCRIMINATOR_SCOPE: &str = "discriminator.";
const GENERATOR_SCOPE: &str = "generator.";

/// One of the two models, without the values of its parameters.
#[derive(Debug, Clone)]
pub struct Half<H> {
    /// Family and shape.
    pub config: ModelConfig,
    /// The encoder.
    pub encoder: Encoder,
    /// The head on top of the encoder.
    pub head: H,
}

/// Both models before their parameters have values.
#[derive(Debug, Clone)]
pub struct PairBlueprint {
    /// The generator, which fills in masked tokens.
    pub generator: Half<MaskedLmHead>,
    /// The discriminator, which distinguishes filled-in tokens from original ones.
    pub discriminator: Half<ReplacedTokenHead>,
    /// All parameters of both.
    pub layout: Layout,
}

/// Both models, and the values of all their parameters.
#[derive(Debug)]
pub struct Pair {
    /// The generator, which fills in masked tokens.
    pub generator: Half<MaskedLmHead>,
    /// The discriminator, which distinguishes filled-in tokens from original ones.
    pub discriminator: Half<ReplacedTokenHead>,
    /// Values of the parameters of both.
    pub parameters: Parameters,
}

impl PairBlueprint {
    /// Both models; `form` is the family's form of replaced-token detection.
    pub fn new(generator: &ModelConfig, discriminator: &ModelConfig, form: ReplacedTokens) -> Self {
        let mut registry = Registry::default();
        registry.begin_model(DISCRIMINATOR, DISCRIMINATOR_SCOPE);
        let mut encoder = Encoder::new(&mut registry, discriminator);
        let embeddings = encoder.embeddings.clone();
        let head = ReplacedTokenHead::new(&mut registry, discriminator, form);
        registry.begin_model(GENERATOR, GENERATOR_SCOPE);
        let mut of_generator = match form.sharing {
            EmbeddingSharing::Whole => Encoder::on(&mut registry, generator, embeddings),
            EmbeddingSharing::Disentangled => {
                registry.begin_at_zero(embeddings.word);
                Encoder::new(&mut registry, generator)
            }
        };
        of_generator.decode_masks(&mut registry, generator);
        let word_embedding = of_generator.embeddings.word;
        encoder.embeddings.shared_word = Some(word_embedding).filter(|&word| word != encoder.embeddings.word);
        let of_discriminator = Half { config: discriminator.clone(), encoder, head };
        let encoder = of_generator;
        let head = MaskedLmHead::new(&mut registry, generator, word_embedding);
        let of_generator = Half { config: generator.clone(), encoder, head };
        Self { generator: of_generator, discriminator: of_discriminator, layout: registry.layout() }
    }

    /// Both models with initial values drawn from `seed`.
    pub fn initialise(self, seed: u64, device: &Device) -> Result<Pair> {
        let Self { generator, discriminator, layout } = self;
        let range = discriminator.config.encoder.initializer_range;
        Ok(Pair {
            generator,
            discriminator,
            parameters: Parameters::initialise(layout, range, seed, device)?,
        })
    }

    /// Both models with all parameters zero, for values from two folders.
    pub fn zeros(self, device: &Device) -> Result<Pair> {
        let Self { generator, discriminator, layout } = self;
        Ok(Pair { generator, discriminator, parameters: Parameters::zeros(layout, device)? })
    }
}

impl Pair {
    /// The same models computing in `dtype`; their parameters stay f32.
    pub fn computing_in(self, dtype: DType) -> Result<Self> {
        Ok(Self { parameters: self.parameters.computing_in(dtype)?, ..self })
    }

    /// Sets gradient checkpointing of both models.
    pub fn checkpoint_gradients(&mut self, gradient_checkpointing: bool) {
        self.generator.encoder.gradient_checkpointing = gradient_checkpointing;
        self.discriminator.encoder.gradient_checkpointing = gradient_checkpointing;
    }

    /// Floating-point operations of forward and backward over `tokens` tokens in segments of mean length
    /// `mean_length`, of which the generator fills in `targets`.
    pub fn flops(&self, tokens: f64, mean_length: f64, targets: f64) -> f64 {
        flops(&self.generator, &self.discriminator, tokens, mean_length, targets)
    }

    /// The parameters of the generator, including the embeddings, and their names in the generator's own
    /// folder.
    pub fn generator_names(&self) -> Vec<(String, String)> {
        let embeddings = format!("{DISCRIMINATOR_SCOPE}{}.embeddings.", self.generator.config.family.prefix);
        let is_whole = self.discriminator.encoder.embeddings.shared_word.is_none();
        self.names(|name| {
            let is_shared = is_whole && name.starts_with(&embeddings);
            let scope = if is_shared { DISCRIMINATOR_SCOPE } else { GENERATOR_SCOPE };
            name.strip_prefix(scope).map(str::to_string)
        })
    }

    /// The names of the discriminator's word embedding and of the generator's, to which it is added, if
    /// sharing is disentangled: a model folder contains their sum.
    pub fn added_names(&self) -> Vec<(String, String)> {
        let family = self.discriminator.config.family;
        let word = format!("{}.{}.weight", family.prefix, family.names.word);
        let added = (format!("{DISCRIMINATOR_SCOPE}{word}"), format!("{GENERATOR_SCOPE}{word}"));
        self.discriminator.encoder.embeddings.shared_word.map(|_| added).into_iter().collect()
    }

    /// Subtracts the generator's word embedding from the discriminator's, after the sum was read from a
    /// folder.
    pub fn take_apart(&self) -> Result<()> {
        for (own, shared) in self.added_names() {
            let named = self.parameters.named()?;
            let [sum, shared] = [&own, &shared]
                .map(|name| named.iter().find(|(known, _)| known == name).map(|(_, tensor)| tensor));
            if let (Some(sum), Some(shared)) = (sum, shared) {
                self.parameters.set(&own, &(sum - shared)?)?;
            }
        }
        Ok(())
    }

    /// The parameters of the discriminator, and their names in the discriminator's own folder.
    pub fn discriminator_names(&self) -> Vec<(String, String)> {
        self.names(|name| name.strip_prefix(DISCRIMINATOR_SCOPE).map(str::to_string))
    }

    fn names(&self, in_folder: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
        let specs = self.parameters.layout().specs();
        specs.filter_map(|spec| Some((spec.name.clone(), in_folder(&spec.name)?))).collect()
    }
}

impl Outline for PairBlueprint {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The generator is finished when the discriminator begins, but freed blocks are cached by size, and
    /// their sizes differ.
    fn memory(&self, step: &StepSizes) -> Prediction {
        let generator_head = self.generator.head.memory(step.targets, step.compute, step.on_gpu);
        let discriminator_head = self.discriminator.head.memory(step.tokens, step.compute);
        let state =
            Prediction { state_bytes: state_bytes(&self.layout, step.compute), ..Prediction::default() };
        state.add(activations(&self.generator.encoder, generator_head, true, step)).add(activations(
            &self.discriminator.encoder,
            discriminator_head,
            false,
            step,
        ))
    }

    fn flops(&self, step: &StepSizes) -> f64 {
        let tokens = step.tokens as f64;
        flops(&self.generator, &self.discriminator, tokens, step.length as f64, step.targets as f64)
    }
}

/// As [`Pair::flops`].
fn flops(
    generator: &Half<MaskedLmHead>,
    discriminator: &Half<ReplacedTokenHead>,
    tokens: f64,
    mean_length: f64,
    targets: f64,
) -> f64 {
    let encoders = generator.encoder.flops(tokens, mean_length, targets)
        + discriminator.encoder.flops(tokens, mean_length, tokens);
    encoders + generator.head.flops(targets) + discriminator.head.flops(tokens)
}

#[cfg(test)]
mod tests {
    use candle_core::Tensor;

    use super::*;
    use base::families::{EncoderConfig, Family};

    fn pair() -> Pair {
        let [generator, discriminator] = [8, 24].map(|hidden_size| {
            let encoder = EncoderConfig {
                vocab_size: 50,
                embedding_size: Some(12),
                hidden_size,
                num_hidden_layers: 2,
                num_attention_heads: 2,
                intermediate_size: 20,
                max_position_embeddings: 16,
                ..EncoderConfig::of(Family::ELECTRA)
            };
            ModelConfig { family: Family::ELECTRA, encoder }
        });
        let names = Family::ELECTRA.replaced_tokens.unwrap();
        PairBlueprint::new(&generator, &discriminator, names).initialise(1, &Device::Cpu).unwrap()
    }

    #[test]
    fn the_embeddings_are_there_once_and_in_both_folders() {
        let pair = pair();
        let names: Vec<&str> = pair.parameters.layout().specs().map(|spec| spec.name.as_str()).collect();
        let tables = names.iter().filter(|name| name.contains("word_embeddings")).count();
        let projections = names.iter().filter(|name| name.ends_with("embeddings_project.weight")).count();
        assert_eq!((tables, projections), (1, 2));
        let generator = pair.generator_names();
        let discriminator = pair.discriminator_names();
        let word = "electra.embeddings.word_embeddings.weight".to_string();
        let shared = (format!("discriminator.{word}"), word);
        assert!(generator.contains(&shared) && discriminator.contains(&shared));
        assert!(has(&generator, "generator_lm_head.bias") && !has(&discriminator, "generator_lm_head.bias"));
        assert!(has(&discriminator, "discriminator_predictions.dense_prediction.weight"));
        assert!(has(&generator, "electra.embeddings_project.weight"));
        // Word, position and type tables, and the two vectors of their norm.
        assert_eq!(generator.len() + discriminator.len(), names.len() + 5);
    }

    #[test]
    fn a_disentangled_pair_has_two_word_embeddings_and_the_discriminators_begins_at_zero() {
        let encoder = EncoderConfig {
            vocab_size: 50,
            hidden_size: 8,
            num_hidden_layers: 2,
            num_attention_heads: 2,
            intermediate_size: 20,
            ..EncoderConfig::of(Family::DEBERTA_V2)
        };
        let model = ModelConfig { family: Family::DEBERTA_V2, encoder };
        let form = Family::DEBERTA_V2.replaced_tokens.unwrap();
        let pair = PairBlueprint::new(&model, &model, form).initialise(1, &Device::Cpu).unwrap();
        let word = "deberta.embeddings.word_embeddings.weight";
        let [own, shared] = ["discriminator.", "generator."].map(|scope| format!("{scope}{word}"));
        assert_eq!(pair.added_names(), [(own.clone(), shared.clone())]);
        assert!(
            value(&pair.parameters, &own)
                .flatten_all()
                .unwrap()
                .to_vec1::<f32>()
                .unwrap()
                .iter()
                .all(|&v| v == 0.0)
        );
        // Both folders have all tensors of a single model.
        assert!(has(&pair.generator_names(), word) && has(&pair.discriminator_names(), word));
        let sum = Tensor::ones((50, 8), DType::F32, &Device::Cpu).unwrap();
        pair.parameters.set(&own, &sum).unwrap();
        pair.take_apart().unwrap();
        let back = (value(&pair.parameters, &own) + value(&pair.parameters, &shared)).unwrap();
        let apart = (back - sum).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
        assert!(apart < 1e-6, "{apart}");
    }

    #[test]
    fn both_models_begin_with_values_of_their_own() {
        let parameters = pair().parameters;
        let rest = "electra.encoder.layer.1.intermediate.dense.weight";
        let [generator, discriminator] = ["generator", "discriminator"].map(|scope| {
            let tensor = value(&parameters, &format!("{scope}.{rest}"));
            tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap()
        });
        assert_ne!(generator[..20], discriminator[..20]);
    }

    /// The value of a parameter.
    fn value(parameters: &Parameters, name: &str) -> Tensor {
        let named = parameters.named().unwrap();
        named.into_iter().find(|(known, _)| known == name).unwrap().1
    }

    /// Returns true if a folder with these names of parameters has a tensor called `name`.
    fn has(names: &[(String, String)], name: &str) -> bool {
        names.iter().any(|(_, file)| file == name)
    }
}
