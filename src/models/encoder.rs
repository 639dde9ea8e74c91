//! The encoder that all families share: embeddings, a map where they have a width of their own, then `L`
//! layers.

use std::ops::Add;

use candle_core::Result;
use candle_core::Tensor;

use crate::families::ModelConfig;
use crate::layers::Context;
use crate::layers::Footprint;
use crate::layers::Gradients;
use crate::layers::Init;
use crate::layers::NormPlacement;
use crate::layers::Part;
use crate::layers::Registry;
use crate::layers::Site;
use crate::layers::Stream;
use crate::layers::embeddings;
use crate::layers::embeddings::Embeddings;
use crate::layers::embeddings::TokenIds;
use crate::layers::encoder_layer;
use crate::layers::encoder_layer::EncoderLayer;
use crate::layers::feed_forward::FeedForward;
use crate::layers::feed_forward::Gate;
use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::layers::output_block::OutputBlock;
use crate::layers::self_attention::Positions;
use crate::layers::self_attention::SelfAttention;

/// Embeddings and layers; parameter names are those of Hugging Face, prefix included.
#[derive(Debug, Clone)]
pub struct Encoder {
    /// The input embeddings.
    pub embeddings: Embeddings,
    /// Save only the input of each layer and run its forward pass again in backward: less memory, a third
    /// more work. Dropout is drawn again from its counters, so no bit of a result changes.
    pub gradient_checkpointing: bool,
    /// From the width of the embeddings to D, where they differ.
    projection: Option<Linear>,
    layers: Vec<EncoderLayer>,
    /// D.
    hidden: usize,
}

/// What backward needs of a whole forward pass.
#[derive(Debug)]
pub struct Saved {
    embeddings: embeddings::Saved,
    /// What the projection took, `[T, E]`.
    embedded: Option<Tensor>,
    layers: Vec<SavedLayer>,
}

/// What backward needs of one layer.
#[derive(Debug)]
enum SavedLayer {
    /// All that the layer itself wants to keep.
    Whole(encoder_layer::Saved),
    /// Its input: the rest is computed again.
    Input(Stream),
}

impl Encoder {
    /// Registers all parameters under the family's prefix.
    pub fn new(registry: &mut Registry, config: &ModelConfig) -> Self {
        let embeddings = Self::embeddings(registry, config);
        Self::on(registry, config, embeddings)
    }

    /// An encoder on embeddings that another model of the run has registered, and shares.
    pub fn on(registry: &mut Registry, config: &ModelConfig, embeddings: Embeddings) -> Self {
        let (shape, prefix) = (&config.encoder, config.family.prefix);
        let hidden = shape.hidden_size;
        let projection = (embeddings.width != hidden).then(|| {
            Linear::new(registry, &format!("{prefix}.embeddings_project"), embeddings.width, hidden)
        });
        let layers = (0..shape.num_hidden_layers).map(|layer| Self::layer(registry, config, layer)).collect();
        Self { embeddings, gradient_checkpointing: false, projection, layers, hidden }
    }

    fn embeddings(registry: &mut Registry, config: &ModelConfig) -> Embeddings {
        let (shape, prefix) = (&config.encoder, config.family.prefix);
        let width = shape.embedding_width();
        let name = |rest: &str| format!("{prefix}.embeddings.{rest}");
        let padding = config.padding_rows();
        let init = |row: Option<u32>| row.map_or(Init::Normal, Init::NormalWithZeroRow);
        Embeddings {
            word: registry.weight(
                name("word_embeddings.weight"),
                &[shape.vocab_size, width],
                init(padding.word),
            ),
            position: registry.weight(
                name("position_embeddings.weight"),
                &[shape.max_position_embeddings, width],
                init(padding.position),
            ),
            token_type: registry.weight(
                name("token_type_embeddings.weight"),
                &[shape.type_vocab_size, width],
                Init::Normal,
            ),
            norm: Norm::new(registry, &name("LayerNorm"), width, shape.layer_norm_eps),
            width,
            word_padding: padding.word,
            position_padding: padding.position,
            hidden_dropout: shape.hidden_dropout_prob,
        }
    }

    fn layer(registry: &mut Registry, config: &ModelConfig, layer: usize) -> EncoderLayer {
        registry.enter(Part::Layer(layer));
        let shape = &config.encoder;
        let name = format!("{}.encoder.layer.{layer}", config.family.prefix);
        let (hidden, intermediate) = (shape.hidden_size, shape.intermediate_size);
        let map = |registry: &mut Registry, part: &str, inputs, outputs| {
            Linear::new(registry, &format!("{name}.{part}"), inputs, outputs)
        };
        let output = |registry: &mut Registry, part: &str, inputs, site| OutputBlock {
            dense: map(registry, &format!("{part}.dense"), inputs, hidden),
            norm: Norm::new(registry, &format!("{name}.{part}.LayerNorm"), hidden, shape.layer_norm_eps),
            placement: NormPlacement::After,
            site,
            dropout: shape.hidden_dropout_prob,
        };
        EncoderLayer {
            attention: SelfAttention {
                heads: shape.num_attention_heads,
                positions: Positions::Absolute,
                window: None,
                dropout: shape.attention_probs_dropout_prob,
                site: Site::AttentionProbabilities(layer),
                query: map(registry, "attention.self.query", hidden, hidden),
                key: map(registry, "attention.self.key", hidden, hidden),
                value: map(registry, "attention.self.value", hidden, hidden),
                output: output(registry, "attention.output", hidden, Site::AttentionOutput(layer)),
            },
            feed_forward: FeedForward {
                intermediate: map(registry, "intermediate.dense", hidden, intermediate),
                gate: Gate::None,
                output: output(registry, "output", intermediate, Site::FeedForward(layer)),
            },
        }
    }

    /// Floating-point operations of forward and backward for each token of segments of mean length
    /// `mean_length`; a layer that is computed twice is counted once.
    pub fn flops(&self, mean_length: f64) -> f64 {
        let projection = self.projection.map_or(0.0, |map| map.flops());
        self.layers.iter().map(|layer| layer.flops(mean_length)).sum::<f64>() + projection
    }

    /// What is kept between forward and backward, for each token.
    pub fn saved(&self, gradient_checkpointing: bool) -> Footprint {
        let input = Footprint { values: self.hidden as u64, statistics_bytes: 0 };
        let layer = |layer: &EncoderLayer| if gradient_checkpointing { input } else { layer.saved() };
        let projected = self.projection.map_or(Footprint::default(), |_| input);
        self.layers.iter().map(layer).fold(self.embeddings.saved() + projected, Footprint::add)
    }

    /// The most that backward needs besides, for each token.
    pub fn temporary(&self, gradient_checkpointing: bool) -> Footprint {
        let Some(layer) = self.layers.first() else { return Footprint::default() };
        if !gradient_checkpointing {
            return layer.temporary();
        }
        // And what the layer in hand saves, but for its output.
        let mut again = layer.saved();
        again.values -= self.hidden as u64;
        layer.temporary() + again
    }

    /// The most that [`Encoder::infer`] takes, for each token: the input of a layer and all that it makes.
    pub fn inferring(&self) -> Footprint {
        let layer = self.layers.first().map_or(Footprint::default(), EncoderLayer::saved);
        self.inferred() + layer
    }

    /// What it gives, for each token.
    pub fn inferred(&self) -> Footprint {
        Footprint { values: self.hidden as u64, statistics_bytes: 0 }
    }

    /// Hidden states of the last layer, `[T, D]`, for which no backward pass follows: what a layer saves is
    /// freed when the next one begins.
    pub fn infer(&self, tokens: TokenIds<'_>, ctx: &Context<'_>) -> Result<Tensor> {
        let (embedded, _) = self.embeddings.forward(tokens, ctx)?;
        let (projected, _) = self.project(embedded, ctx)?;
        let mut hidden = Stream::from(projected);
        for layer in &self.layers {
            (hidden, _) = layer.forward(&hidden, ctx)?;
        }
        Ok(hidden.input)
    }

    /// Hidden states of the last layer, `[T, D]`, and what backward needs.
    pub fn forward(&self, tokens: TokenIds<'_>, ctx: &Context<'_>) -> Result<(Tensor, Saved)> {
        self.observed(tokens, ctx, &mut |_, _| Ok(()))
    }

    /// As [`Self::forward`]; `seen` is shown what the embeddings and each layer give, `[T, D]`.
    pub fn observed(
        &self,
        tokens: TokenIds<'_>,
        ctx: &Context<'_>,
        seen: &mut dyn FnMut(Part, &Tensor) -> Result<()>,
    ) -> Result<(Tensor, Saved)> {
        let (embedded, embeddings) = self.embeddings.forward(tokens, ctx)?;
        let (projected, embedded) = self.project(embedded, ctx)?;
        seen(Part::Embeddings, &projected)?;
        let mut hidden = Stream::from(projected);
        let mut layers = Vec::with_capacity(self.layers.len());
        for (index, layer) in self.layers.iter().enumerate() {
            let (next, saved) = layer.forward(&hidden, ctx)?;
            seen(Part::Layer(index), &next.input)?;
            let input = std::mem::replace(&mut hidden, next);
            layers.push(if self.gradient_checkpointing {
                SavedLayer::Input(input)
            } else {
                SavedLayer::Whole(saved)
            });
        }
        Ok((hidden.input, Saved { embeddings, embedded, layers }))
    }

    /// What the first layer takes, `[T, D]`; and `embedded`, where a projection took it.
    fn project(&self, embedded: Tensor, ctx: &Context<'_>) -> Result<(Tensor, Option<Tensor>)> {
        match &self.projection {
            None => Ok((embedded, None)),
            Some(map) => Ok((map.forward(&embedded, ctx)?, Some(embedded))),
        }
    }

    /// Accumulates the gradients of all parameters, last layer first; what a layer saved is freed when it is
    /// done.
    pub fn backward(
        &self,
        d_hidden: Tensor,
        tokens: TokenIds<'_>,
        saved: Saved,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<()> {
        let mut d_stream = Stream::from(d_hidden);
        for ((index, layer), saved) in self.layers.iter().enumerate().zip(saved.layers).rev() {
            let saved = match saved {
                SavedLayer::Whole(saved) => saved,
                SavedLayer::Input(x) => layer.forward(&x, ctx)?.1,
            };
            d_stream = layer.backward(&d_stream, &saved, ctx, gradients)?;
            gradients.left(ctx.pass, Part::Layer(index))?;
        }
        // The first layer has no norm before it: what it reads is also what its output is added to.
        let mut d_hidden = d_stream.input;
        if let (Some(map), Some(embedded)) = (&self.projection, &saved.embedded) {
            d_hidden = map.backward(&d_hidden, embedded, ctx, gradients)?;
        }
        self.embeddings.backward(&d_hidden, tokens, &saved.embeddings, ctx, gradients)?;
        gradients.left(ctx.pass, Part::Embeddings)?;
        Ok(())
    }
}
