//! The encoder of all families: embeddings, a map if their width differs from D, followed by `L` layers.

mod parts;

use std::ops::Add;

use candle_core::{Result, Tensor};

use crate::layers::embeddings::{Embeddings, TokenIds};
use crate::layers::encoder_layer::EncoderLayer;
use crate::layers::linear::Linear;
use crate::layers::mask_decoder::MaskDecoder;
use crate::layers::relative_positions::{PositionTable, RelativePositions, SharedPositions};
use crate::layers::self_attention::Positions;
use crate::layers::{
    Chosen, Context, Footprint, Footprints, Gradients, Part, Registry, Stream, embeddings, encoder_layer,
    mask_decoder,
};
use crate::models::encoder::parts::Parts;
use base::families::ModelConfig;

/// Embeddings and layers. Parameter names are those of Hugging Face, including the prefix.
#[derive(Debug, Clone)]
pub struct Encoder {
    /// The input embeddings.
    pub embeddings: Embeddings,
    /// Save only the input of each layer and run its forward pass again in backward: less memory, a third
    /// more work. Dropout is drawn again from its counters, so no bit of a result changes.
    pub gradient_checkpointing: bool,
    /// True if all layers have the same parameters, so that no single layer can be frozen or have its own
    /// learning rate.
    pub shares_layers: bool,
    /// The lowest trained part: backward ends there, and the parts below save nothing for it.
    pub first_trained: Part,
    /// Map from the width of the embeddings to D, if they differ.
    projection: Option<Linear>,
    /// The table of relative positions, if there is one.
    positions: Option<PositionTable>,
    layers: Vec<EncoderLayer>,
    /// The decoder that replaces the last layer, in masked language models that have one.
    mask_decoder: Option<MaskDecoder>,
    /// Hidden size (D).
    hidden: usize,
}

/// Values saved by a whole forward pass for backward.
#[derive(Debug)]
pub struct Saved {
    /// `None` if the embeddings are frozen.
    embeddings: Option<embeddings::Saved>,
    /// The input of the projection, `[T, E]`.
    embedded: Option<Tensor>,
    shared: Option<SharedPositions>,
    layers: Vec<SavedLayer>,
}

/// Values saved of one layer.
#[derive(Debug)]
enum SavedLayer {
    /// All values that the layer saves itself.
    Whole(encoder_layer::Saved),
    /// All values that the mask decoder saves.
    Decoded(mask_decoder::Saved),
    /// The layer's input: the other values are computed again.
    Input(Stream),
    /// Nothing: the layer and all parts below are frozen.
    Frozen,
}

impl Encoder {
    /// Registers all parameters under the family's prefix.
    pub fn new(registry: &mut Registry, config: &ModelConfig) -> Self {
        let embeddings = Parts::new(registry, config).embeddings();
        Self::on(registry, config, embeddings)
    }

    /// An encoder on embeddings that another model of the run has registered and shares.
    pub fn on(registry: &mut Registry, config: &ModelConfig, embeddings: Embeddings) -> Self {
        let hidden = config.encoder.hidden_size;
        let mut parts = Parts::new(registry, config);
        let projection = parts.projection(embeddings.width);
        let positions = parts.position_table();
        let layers = parts.layers();
        Self {
            embeddings,
            gradient_checkpointing: false,
            shares_layers: config.family.shares_layers,
            first_trained: Part::default(),
            projection,
            positions,
            layers,
            mask_decoder: None,
            hidden,
        }
    }

    /// Turns this encoder into that of a masked language model, with a mask decoder if the configuration has
    /// one.
    pub fn decode_masks(&mut self, registry: &mut Registry, config: &ModelConfig) {
        if let (true, Some(last)) = (config.encoder.enhanced_mask_decoder, self.layers.last()) {
            let before = self.layers.len() - 1;
            // The gradient of the decoder's position table is final when those of the last layer are.
            registry.enter(Part::Layer(before));
            let position = Parts::new(registry, config).absolute_positions();
            self.mask_decoder = position.map(|table| MaskDecoder::new(last, self.layers.len(), table));
        }
    }

    /// Floating-point operations of forward and backward of `tokens` tokens in segments of mean length
    /// `mean_length`, of which a head reads `chosen` rows; the recomputation of gradient checkpointing is not
    /// counted.
    pub fn flops(&self, tokens: f64, mean_length: f64, chosen: f64) -> f64 {
        let projection =
            self.projection.map_or(0.0, |map| self.flops_done(Part::Embeddings, tokens * map.flops()));
        let layers = self.layers.iter().enumerate().map(|(index, layer)| {
            let flops = match (self.is_last(index), &self.mask_decoder) {
                (false, _) => layer.flops(tokens, mean_length, tokens),
                (true, None) => layer.flops(tokens, mean_length, chosen),
                (true, Some(decoder)) => decoder.flops(tokens, mean_length, chosen),
            };
            self.flops_done(Part::Layer(index), flops)
        });
        layers.sum::<f64>() + projection
    }

    /// The operations of a part, of which a frozen one has no backward pass: that takes twice the operations
    /// of forward.
    fn flops_done(&self, part: Part, flops: f64) -> f64 {
        if part < self.first_trained { flops / 3.0 } else { flops }
    }

    fn is_last(&self, layer: usize) -> bool {
        layer + 1 == self.layers.len()
    }

    /// The rows that a layer computes: only the last one computes chosen rows.
    fn chosen_of<'a>(&self, layer: usize, chosen: Option<Chosen<'a>>) -> Option<Chosen<'a>> {
        chosen.filter(|_| self.is_last(layer))
    }

    /// Number of layers (L).
    pub fn num_layers(&self) -> usize {
        self.layers.len()
    }

    /// All layers that run in a pass: a mask decoder counts as two.
    fn runs(&self) -> impl Iterator<Item = &EncoderLayer> {
        let decoding = self.mask_decoder.as_ref().map(|decoder| &decoder.passes()[1]);
        self.layers.iter().chain(decoding)
    }

    /// The layers that are trained.
    fn trained(&self) -> impl Iterator<Item = &EncoderLayer> {
        let frozen = if let Part::Layer(first) = self.first_trained { first } else { 0 };
        self.layers.iter().skip(frozen)
    }

    /// Memory saved between forward and backward; `chooses` is true if a head reads only chosen rows.
    pub fn saved(&self, gradient_checkpointing: bool, chooses: bool) -> Footprints {
        let hidden = Footprint { values: self.hidden as u64, statistics_bytes: 0 };
        let projected = self.projection.map_or(Footprint::default(), |_| hidden);
        let begun = if self.first_trained == Part::Embeddings {
            self.embeddings.saved() + projected
        } else {
            self.trained().next().map_or(Footprint::default(), EncoderLayer::input)
        };
        let given =
            if chooses { Footprints { of_chosen: hidden, ..Footprints::default() } } else { hidden.into() };
        if gradient_checkpointing {
            // The input of each layer but the first, and the output of the last layer, without its residual
            // sum.
            let taken = self.trained().skip(1).map(EncoderLayer::input);
            return Footprints::from(taken.fold(begun, Footprint::add)) + given;
        }
        let Some(last) = self.trained().last() else { return Footprints::from(begun) + given };
        let before = self.trained().take(self.trained().count() - 1);
        let last = if chooses { self.saved_of_chosen(last) } else { last.saved().into() };
        Footprints::from(before.map(EncoderLayer::saved).fold(begun, Footprint::add)) + last
    }

    /// Memory saved by the last layer, which has the shape of `layer`, if rows are chosen.
    fn saved_of_chosen(&self, layer: &EncoderLayer) -> Footprints {
        self.mask_decoder.as_ref().map_or_else(|| layer.saved_of_chosen(), MaskDecoder::saved)
    }

    /// Bytes of the dropout masks that a GPU saves for `tokens` tokens in segments of `length`.
    pub fn kept_bytes(&self, tokens: u64, length: u64, gradient_checkpointing: bool) -> u64 {
        let frozen = self.layers.len() - self.trained().count();
        let kept = self.runs().skip(frozen).map(|layer| layer.kept_bytes(tokens, length));
        // With gradient checkpointing, only one layer's masks at a time.
        if gradient_checkpointing { kept.max().unwrap_or(0) } else { kept.sum() }
    }

    /// Memory that a GPU needs in addition in the forward pass of a layer, per token in segments of `length`
    /// tokens, and twice of it in backward: the scores of relative positions.
    pub fn position_scores(&self, length: u64) -> Footprint {
        let attention = self.layers.first().map(|layer| &layer.attention);
        let relative = attention.and_then(|attention| Some((attention.relative()?, attention.heads as u64)));
        relative.map_or(Footprint::default(), |(relative, heads)| relative.position_scores(heads, length))
    }

    /// Peak of the memory that backward needs in addition; `chooses` is true if a head reads only chosen
    /// rows, whose blocks have other sizes.
    pub fn temporary(&self, gradient_checkpointing: bool, chooses: bool) -> Footprints {
        let Some(layer) = self.layers.first() else { return Footprints::default() };
        let trained = self.trained().count();
        if trained == 0 {
            // The values that the forward pass of one layer at a time computes.
            return layer.saved().into();
        }
        // With gradient checkpointing, the values that the current layer saves, without its output.
        let again = |saved: Footprint| {
            let but_output = Footprint { values: saved.values - self.hidden as u64, ..saved };
            if gradient_checkpointing { but_output } else { Footprint::default() }
        };
        let of_all = layer.temporary() + again(layer.saved());
        if !chooses {
            return of_all.into();
        }
        let saved = self.saved_of_chosen(layer);
        let Footprints { of_tokens, of_chosen } = layer.temporary_of_chosen();
        let of_tokens = if trained > 1 { of_all } else { of_tokens + again(saved.of_tokens) };
        Footprints { of_tokens, of_chosen: of_chosen + again(saved.of_chosen) }
    }

    /// Changes the RoPE base of the layers that attend to all tokens, if positions are rotary.
    pub fn set_global_rope_theta(&self, theta: f64) {
        for layer in &self.layers {
            if let (Positions::Rotary(angles), None) = (&layer.attention.positions, layer.attention.window) {
                angles.set_theta(theta);
            }
        }
    }

    /// Memory of relative positions, independent of the number of tokens: the rows of their table, and per
    /// row the memory saved for backward, and the peak that backward needs in addition.
    pub fn of_positions(&self, gradient_checkpointing: bool) -> (u64, [Footprint; 2]) {
        let Some(table) = &self.positions else { return (0, [Footprint::default(); 2]) };
        let layers: Vec<&RelativePositions> =
            self.runs().filter_map(|layer| layer.attention.relative()).collect();
        let first = layers.first();
        let (kept, besides) = if gradient_checkpointing {
            (
                Footprint::default(),
                first.map_or(Footprint::default(), |layer| layer.saved() + layer.temporary()),
            )
        } else {
            (
                layers.iter().map(|layer| layer.saved()).fold(Footprint::default(), Footprint::add),
                first.map_or(Footprint::default(), |layer| layer.temporary()),
            )
        };
        (table.rows as u64, [table.saved() + kept, besides])
    }

    /// Peak memory of [`Encoder::infer`] per token: the input of a layer and all values that it computes.
    pub fn inferring(&self) -> Footprint {
        let layer = self.layers.first().map_or(Footprint::default(), EncoderLayer::saved);
        Footprint { values: self.hidden as u64, statistics_bytes: 0 } + layer
    }

    /// Hidden states of the last layer, of the chosen rows, `[M, D]`, or of all, `[T, D]`, without a backward
    /// pass: the values that a layer saves are freed when the next one begins.
    pub fn infer(
        &self,
        tokens: TokenIds<'_>,
        chosen: Option<Chosen<'_>>,
        ctx: &Context<'_>,
    ) -> Result<Tensor> {
        let (embedded, _) = self.embeddings.forward(tokens, ctx)?;
        let (mut hidden, _) = self.project(embedded, ctx)?;
        let shared = self.share(ctx)?;
        for index in 0..self.layers.len() {
            (hidden, _) = self.layer(index, &hidden, tokens, shared.as_ref(), chosen, ctx)?;
        }
        Ok(hidden.input)
    }

    /// Runs one layer, or the mask decoder that replaces it; only the last one computes chosen rows.
    fn layer(
        &self,
        index: usize,
        x: &Stream,
        tokens: TokenIds<'_>,
        shared: Option<&SharedPositions>,
        chosen: Option<Chosen<'_>>,
        ctx: &Context<'_>,
    ) -> Result<(Stream, SavedLayer)> {
        let chosen = self.chosen_of(index, chosen);
        if let Some(decoder) = self.mask_decoder.as_ref().filter(|_| self.is_last(index)) {
            let (y, saved) = decoder.forward(&x.input, (tokens, chosen), shared, ctx)?;
            return Ok((y.into(), SavedLayer::Decoded(saved)));
        }
        let (y, saved) = self.layers[index].forward(x, shared, chosen, ctx)?;
        Ok((y, SavedLayer::Whole(saved)))
    }

    /// Hidden states of the last layer, of the chosen rows, `[M, D]`, or of all, `[T, D]`; and the values
    /// saved for backward.
    pub fn forward(
        &self,
        tokens: TokenIds<'_>,
        chosen: Option<Chosen<'_>>,
        ctx: &Context<'_>,
    ) -> Result<(Tensor, Saved)> {
        self.observed(tokens, chosen, ctx, &mut |_, _| Ok(()))
    }

    /// As [`Self::forward`]; `seen` is called with the output of the embeddings and of each layer.
    pub fn observed(
        &self,
        tokens: TokenIds<'_>,
        chosen: Option<Chosen<'_>>,
        ctx: &Context<'_>,
        seen: &mut dyn FnMut(Part, &Tensor) -> Result<()>,
    ) -> Result<(Tensor, Saved)> {
        let (embedded, embeddings) = self.embeddings.forward(tokens, ctx)?;
        let (mut hidden, embedded) = self.project(embedded, ctx)?;
        let is_trained = self.first_trained == Part::Embeddings;
        let embeddings = is_trained.then_some(embeddings);
        let embedded = embedded.filter(|_| is_trained);
        seen(Part::Embeddings, &hidden.input)?;
        let shared = self.share(ctx)?;
        let mut layers = Vec::with_capacity(self.layers.len());
        for index in 0..self.layers.len() {
            let (next, saved) = self.layer(index, &hidden, tokens, shared.as_ref(), chosen, ctx)?;
            seen(Part::Layer(index), &next.input)?;
            let input = std::mem::replace(&mut hidden, next);
            layers.push(if Part::Layer(index) < self.first_trained {
                SavedLayer::Frozen
            } else if self.gradient_checkpointing {
                SavedLayer::Input(input)
            } else {
                saved
            });
        }
        Ok((hidden.input, Saved { embeddings, embedded, shared, layers }))
    }

    /// The table of relative positions for the layers of a pass.
    fn share(&self, ctx: &Context<'_>) -> Result<Option<SharedPositions>> {
        self.positions.as_ref().map(|table| table.forward(ctx)).transpose()
    }

    /// The input of the first layer, `[T, D]`; and `embedded` if it was projected.
    fn project(&self, embedded: Stream, ctx: &Context<'_>) -> Result<(Stream, Option<Tensor>)> {
        match &self.projection {
            None => Ok((embedded, None)),
            Some(map) => Ok((map.forward(&embedded.input, ctx)?.into(), Some(embedded.input))),
        }
    }

    /// Accumulates the gradients of all trained parameters, last layer first, from the gradient of the output
    /// of [`Self::forward`] for the same tokens and chosen rows. The values saved of a layer are freed after
    /// its backward pass.
    pub fn backward(
        &self,
        d_hidden: Tensor,
        tokens: TokenIds<'_>,
        chosen: Option<Chosen<'_>>,
        saved: Saved,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<()> {
        let mut d_stream = Stream::from(d_hidden);
        let mut shared = saved.shared;
        for ((index, layer), saved) in self.layers.iter().enumerate().zip(saved.layers).rev() {
            let saved = match saved {
                SavedLayer::Input(x) => self.layer(index, &x, tokens, shared.as_ref(), chosen, ctx)?.1,
                saved => saved,
            };
            let chosen = self.chosen_of(index, chosen);
            let shared = shared.as_mut();
            d_stream = match (saved, &self.mask_decoder) {
                (SavedLayer::Whole(saved), _) => {
                    layer.backward(&d_stream, &saved, shared, chosen, ctx, gradients)?
                }
                (SavedLayer::Decoded(saved), Some(decoder)) => {
                    let d_y = d_stream.input;
                    decoder.backward(d_y, (tokens, chosen), &saved, shared, ctx, gradients)?.into()
                }
                // This layer and all parts below are frozen.
                _ => return Ok(()),
            };
            gradients.left(ctx.pass, Part::Layer(index))?;
        }
        let Some(embeddings) = &saved.embeddings else { return Ok(()) };
        if let (Some(map), Some(embedded)) = (&self.projection, &saved.embedded) {
            d_stream = map.backward(&d_stream.input, embedded, ctx, gradients)?.into();
        }
        if let (Some(table), Some(shared)) = (&self.positions, shared) {
            table.backward(shared, ctx, gradients)?;
        }
        self.embeddings.backward(&d_stream, tokens, embeddings, ctx, gradients)?;
        gradients.left(ctx.pass, Part::Embeddings)?;
        Ok(())
    }
}
