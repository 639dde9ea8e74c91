//! The encoder that all families share: embeddings, a map where they have a width of their own, then `L`
//! layers.

mod parts;

use std::ops::Add;

use candle_core::Result;
use candle_core::Tensor;

use crate::families::ModelConfig;
use crate::layers::Chosen;
use crate::layers::Context;
use crate::layers::Footprint;
use crate::layers::Footprints;
use crate::layers::Gradients;
use crate::layers::Part;
use crate::layers::Registry;
use crate::layers::Stream;
use crate::layers::embeddings;
use crate::layers::embeddings::Embeddings;
use crate::layers::embeddings::TokenIds;
use crate::layers::encoder_layer;
use crate::layers::encoder_layer::EncoderLayer;
use crate::layers::linear::Linear;
use crate::layers::mask_decoder;
use crate::layers::mask_decoder::MaskDecoder;
use crate::layers::relative_positions::PositionTable;
use crate::layers::relative_positions::RelativePositions;
use crate::layers::relative_positions::SharedPositions;
use crate::layers::self_attention::Positions;
use crate::models::encoder::parts::Parts;

/// Embeddings and layers; parameter names are those of Hugging Face, prefix included.
#[derive(Debug, Clone)]
pub struct Encoder {
    /// The input embeddings.
    pub embeddings: Embeddings,
    /// Save only the input of each layer and run its forward pass again in backward: less memory, a third
    /// more work. Dropout is drawn again from its counters, so no bit of a result changes.
    pub gradient_checkpointing: bool,
    /// Whether all layers are one, of whose parameters no part can be frozen or have a rate of its own.
    pub shares_layers: bool,
    /// The lowest part that is trained: backward ends there, and what stands below saves nothing for it.
    pub first_trained: Part,
    /// From the width of the embeddings to D, where they differ.
    projection: Option<Linear>,
    /// The table of relative positions, where there is one.
    positions: Option<PositionTable>,
    layers: Vec<EncoderLayer>,
    /// What stands in the place of the last layer, in a masked language model that has one.
    mask_decoder: Option<MaskDecoder>,
    /// D.
    hidden: usize,
}

/// What backward needs of a whole forward pass.
#[derive(Debug)]
pub struct Saved {
    /// None where they are frozen.
    embeddings: Option<embeddings::Saved>,
    /// What the projection took, `[T, E]`.
    embedded: Option<Tensor>,
    shared: Option<SharedPositions>,
    layers: Vec<SavedLayer>,
}

/// What backward needs of one layer.
#[derive(Debug)]
enum SavedLayer {
    /// All that the layer itself wants to keep.
    Whole(encoder_layer::Saved),
    /// The same of a mask decoder.
    Decoded(mask_decoder::Saved),
    /// Its input: the rest is computed again.
    Input(Stream),
    /// Nothing: it is frozen, and so is what stands below.
    Frozen,
}

impl Encoder {
    /// Registers all parameters under the family's prefix.
    pub fn new(registry: &mut Registry, config: &ModelConfig) -> Self {
        let embeddings = Parts::new(registry, config).embeddings();
        Self::on(registry, config, embeddings)
    }

    /// An encoder on embeddings that another model of the run has registered, and shares.
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

    /// From here on a masked language model, which has a mask decoder where the configuration says so.
    pub fn decode_masks(&mut self, registry: &mut Registry, config: &ModelConfig) {
        if let (true, Some(last)) = (config.encoder.enhanced_mask_decoder, self.layers.last()) {
            let before = self.layers.len() - 1;
            // Its gradient is final when the last layer's are.
            registry.enter(Part::Layer(before));
            let position = Parts::new(registry, config).absolute_positions();
            self.mask_decoder = position.map(|table| MaskDecoder::new(last, self.layers.len(), table));
        }
    }

    /// Floating-point operations of forward and backward of `tokens` tokens in segments of mean length
    /// `mean_length`, where a head reads `chosen` rows; a layer that is computed twice is counted once.
    pub fn flops(&self, tokens: f64, mean_length: f64, chosen: f64) -> f64 {
        // Backward takes twice what forward does.
        let done = |part: Part, flops: f64| if part < self.first_trained { flops / 3.0 } else { flops };
        let projection = self.projection.map_or(0.0, |map| done(Part::Embeddings, tokens * map.flops()));
        let of = |(index, layer): (usize, &EncoderLayer)| {
            let flops = match (self.is_last(index), &self.mask_decoder) {
                (false, _) => layer.flops(tokens, mean_length, tokens),
                (true, None) => layer.flops(tokens, mean_length, chosen),
                (true, Some(decoder)) => decoder.flops(tokens, mean_length, chosen),
            };
            done(Part::Layer(index), flops)
        };
        self.layers.iter().enumerate().map(of).sum::<f64>() + projection
    }

    fn is_last(&self, layer: usize) -> bool {
        layer + 1 == self.layers.len()
    }

    /// What a layer is asked for: the last one alone computes chosen rows.
    fn chosen_of<'a>(&self, layer: usize, chosen: Option<Chosen<'a>>) -> Option<Chosen<'a>> {
        chosen.filter(|_| self.is_last(layer))
    }

    /// Number of layers (L).
    pub fn num_layers(&self) -> usize {
        self.layers.len()
    }

    /// All that runs in a pass, as layers: a mask decoder is two.
    fn runs(&self) -> impl Iterator<Item = &EncoderLayer> {
        let decoding = self.mask_decoder.as_ref().map(|decoder| &decoder.passes()[1]);
        self.layers.iter().chain(decoding)
    }

    /// The layers that are trained.
    fn trained(&self) -> impl Iterator<Item = &EncoderLayer> {
        let frozen = if let Part::Layer(first) = self.first_trained { first } else { 0 };
        self.layers.iter().skip(frozen)
    }

    /// What is kept between forward and backward; `chooses` where a head reads chosen rows alone.
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
            // What each layer takes of the one before, and what the last one gives, of which nobody takes the
            // sum.
            let taken = self.trained().skip(1).map(EncoderLayer::input);
            return Footprints::from(taken.fold(begun, Footprint::add)) + given;
        }
        let Some(last) = self.trained().last() else { return Footprints::from(begun) + given };
        let before = self.trained().take(self.trained().count() - 1);
        let last = if chooses { self.saved_of_chosen(last) } else { last.saved().into() };
        Footprints::from(before.map(EncoderLayer::saved).fold(begun, Footprint::add)) + last
    }

    /// What is kept of the last layer, which is like `layer`, where rows are chosen.
    fn saved_of_chosen(&self, layer: &EncoderLayer) -> Footprints {
        self.mask_decoder.as_ref().map_or_else(|| layer.saved_of_chosen(), MaskDecoder::saved)
    }

    /// Bytes of the decisions of dropout that a GPU saves for `tokens` tokens in segments of `length`.
    pub fn kept_bytes(&self, tokens: u64, length: u64, gradient_checkpointing: bool) -> u64 {
        let frozen = self.layers.len() - self.trained().count();
        let kept = self.runs().skip(frozen).map(|layer| layer.kept_bytes(tokens, length));
        // Where it is computed again, that of one layer at a time.
        if gradient_checkpointing { kept.max().unwrap_or(0) } else { kept.sum() }
    }

    /// What a GPU holds beside in the forward pass of a layer, for each token of segments of `length` tokens,
    /// and twice in backward: what they say of relative positions.
    pub fn said(&self, length: u64) -> Footprint {
        let attention = self.layers.first().map(|layer| &layer.attention);
        let relative = attention.and_then(|attention| Some((attention.relative()?, attention.heads as u64)));
        relative.map_or(Footprint::default(), |(relative, heads)| relative.said(heads, length))
    }

    /// The most that backward needs besides; `chooses` where a head reads chosen rows alone, whose blocks have
    /// sizes of their own.
    pub fn temporary(&self, gradient_checkpointing: bool, chooses: bool) -> Footprints {
        let Some(layer) = self.layers.first() else { return Footprints::default() };
        let trained = self.trained().count();
        if trained == 0 {
            // Of one layer at a time what its forward pass makes.
            return layer.saved().into();
        }
        // Where it is computed again, what the layer in hand saves as well, but for its output.
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

    /// Turns queries and keys of the layers that attend to all tokens by angles of another base, where
    /// positions are angles.
    pub fn set_global_rope_theta(&self, theta: f64) {
        for layer in &self.layers {
            if let (Positions::Rotary(angles), None) = (&layer.attention.positions, layer.attention.window) {
                angles.set_theta(theta);
            }
        }
    }

    /// What relative positions take whatever the tokens: the rows of their table, what is kept for backward
    /// for each of them, and the most that backward needs besides.
    pub fn of_positions(&self, gradient_checkpointing: bool) -> (u64, [Footprint; 2]) {
        let Some(table) = &self.positions else { return (0, [Footprint::default(); 2]) };
        let layers = || self.runs().filter_map(|layer| layer.attention.relative());
        let in_layers = layers().map(RelativePositions::saved).fold(Footprint::default(), Footprint::add);
        let of_layer =
            layers().next().map_or(Footprint::default(), |layer| layer.saved() + layer.temporary());
        let (kept, besides) = if gradient_checkpointing {
            (Footprint::default(), of_layer)
        } else {
            (in_layers, layers().next().map_or(Footprint::default(), RelativePositions::temporary))
        };
        (table.rows as u64, [table.saved() + kept, besides])
    }

    /// The most that [`Encoder::infer`] takes, for each token: the input of a layer and all that it makes.
    pub fn inferring(&self) -> Footprint {
        let layer = self.layers.first().map_or(Footprint::default(), EncoderLayer::saved);
        Footprint { values: self.hidden as u64, statistics_bytes: 0 } + layer
    }

    /// Hidden states of the last layer, of the chosen rows, `[M, D]`, or of all, `[T, D]`, for which no backward
    /// pass follows: what a layer saves is freed when the next one begins.
    pub fn infer(
        &self,
        tokens: TokenIds<'_>,
        chosen: Option<Chosen<'_>>,
        ctx: &Context<'_>,
    ) -> Result<Tensor> {
        let (embedded, _) = self.embeddings.forward(tokens, ctx)?;
        let (projected, _) = self.project(embedded, ctx)?;
        let shared = self.share(ctx)?;
        let mut hidden = Stream::from(projected);
        for index in 0..self.layers.len() {
            (hidden, _) = self.layer(index, &hidden, tokens, shared.as_ref(), chosen, ctx)?;
        }
        Ok(hidden.input)
    }

    /// One layer, or what stands in its place; rows are chosen for the last one alone.
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

    /// Hidden states of the last layer, of the chosen rows, `[M, D]`, or of all, `[T, D]`; and what backward
    /// needs.
    pub fn forward(
        &self,
        tokens: TokenIds<'_>,
        chosen: Option<Chosen<'_>>,
        ctx: &Context<'_>,
    ) -> Result<(Tensor, Saved)> {
        self.observed(tokens, chosen, ctx, &mut |_, _| Ok(()))
    }

    /// As [`Self::forward`]; `seen` is shown what the embeddings and each layer give.
    pub fn observed(
        &self,
        tokens: TokenIds<'_>,
        chosen: Option<Chosen<'_>>,
        ctx: &Context<'_>,
        seen: &mut dyn FnMut(Part, &Tensor) -> Result<()>,
    ) -> Result<(Tensor, Saved)> {
        let (embedded, embeddings) = self.embeddings.forward(tokens, ctx)?;
        let (projected, embedded) = self.project(embedded, ctx)?;
        let is_trained = self.first_trained == Part::Embeddings;
        let (embeddings, embedded) = (is_trained.then_some(embeddings), embedded.filter(|_| is_trained));
        seen(Part::Embeddings, &projected)?;
        let shared = self.share(ctx)?;
        let mut hidden = Stream::from(projected);
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

    /// What the first layer takes, `[T, D]`; and `embedded`, where a projection took it.
    fn project(&self, embedded: Tensor, ctx: &Context<'_>) -> Result<(Tensor, Option<Tensor>)> {
        match &self.projection {
            None => Ok((embedded, None)),
            Some(map) => Ok((map.forward(&embedded, ctx)?, Some(embedded))),
        }
    }

    /// Accumulates the gradients of all parameters that are trained, last layer first, from that of what
    /// [`Self::forward`] gave for the same tokens and chosen rows; what a layer saved is freed when it is done.
    pub fn backward(
        &self,
        d_hidden: Tensor,
        tokens: TokenIds<'_>,
        chosen: Option<Chosen<'_>>,
        saved: Saved,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<()> {
        let (mut d_stream, mut shared) = (Stream::from(d_hidden), saved.shared);
        for ((index, layer), saved) in self.layers.iter().enumerate().zip(saved.layers).rev() {
            let saved = match saved {
                SavedLayer::Input(x) => self.layer(index, &x, tokens, shared.as_ref(), chosen, ctx)?.1,
                saved => saved,
            };
            let (chosen, shared) = (self.chosen_of(index, chosen), shared.as_mut());
            d_stream = match (saved, &self.mask_decoder) {
                (SavedLayer::Whole(saved), _) => {
                    layer.backward(&d_stream, &saved, shared, chosen, ctx, gradients)?
                }
                (SavedLayer::Decoded(saved), Some(decoder)) => {
                    let d_y = d_stream.input;
                    decoder.backward(d_y, (tokens, chosen), &saved, shared, ctx, gradients)?.into()
                }
                // Frozen: so is what stands below.
                _ => return Ok(()),
            };
            gradients.left(ctx.pass, Part::Layer(index))?;
        }
        let Some(embeddings) = &saved.embeddings else { return Ok(()) };
        // The first layer has no norm before it: what it reads is also what its output is added to.
        let mut d_hidden = d_stream.input;
        if let (Some(map), Some(embedded)) = (&self.projection, &saved.embedded) {
            d_hidden = map.backward(&d_hidden, embedded, ctx, gradients)?;
        }
        if let (Some(table), Some(shared)) = (&self.positions, shared) {
            table.backward(shared, ctx, gradients)?;
        }
        self.embeddings.backward(&d_hidden, tokens, embeddings, ctx, gradients)?;
        gradients.left(ctx.pass, Part::Embeddings)?;
        Ok(())
    }
}
