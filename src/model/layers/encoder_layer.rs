//! One encoder layer: self-attention, followed by feed-forward.

use candle_core::Result;

use crate::layers::feed_forward::FeedForward;
use crate::layers::relative_positions::SharedPositions;
use crate::layers::self_attention::{Positions, SelfAttention};
use crate::layers::{
    Chosen, Context, Footprint, Footprints, Gradients, NormPlacement, Site, Stream, feed_forward,
    self_attention,
};

/// An encoder layer.
#[derive(Debug, Clone)]
pub struct EncoderLayer {
    /// The attention block.
    pub attention: SelfAttention,
    /// The feed-forward block.
    pub feed_forward: FeedForward,
}

/// Values saved for the backward pass.
#[derive(Debug)]
pub struct Saved {
    attention: self_attention::Saved,
    feed_forward: feed_forward::Saved,
}

impl EncoderLayer {
    /// A copy of this layer, with the same parameters, as number `layer` of a model that repeats it: it has
    /// its own dropout.
    #[must_use]
    pub fn again_as(&self, layer: usize) -> Self {
        let mut again = self.clone();
        again.attention.site = Site::AttentionProbabilities(layer);
        again.attention.output.site = Site::AttentionOutput(layer);
        again.feed_forward.output.site = Site::FeedForward(layer);
        if let Positions::Relative(relative) = &mut again.attention.positions {
            relative.site = Site::RelativePositions(layer);
        }
        again
    }

    /// Floating-point operations for `tokens` tokens in segments of mean length `mean_length`, of which
    /// `chosen` continue after attention.
    pub fn flops(&self, tokens: f64, mean_length: f64, chosen: f64) -> f64 {
        let of_chosen = self.attention.output.flops() + self.feed_forward.flops();
        tokens * self.attention.flops(mean_length) + chosen * of_chosen
    }

    /// Memory of the layer's input: hidden states, and for pre-norm layers also the residual that was normed.
    pub fn input(&self) -> Footprint {
        let tensors = match self.feed_forward.output.placement {
            NormPlacement::After => 1,
            NormPlacement::Before => 2,
        };
        Footprint { values: tensors * self.feed_forward.output.dense.outputs as u64, statistics_bytes: 0 }
    }

    /// Bytes of the dropout masks that a GPU saves for `tokens` tokens in segments of `length`, assuming that
    /// all rows are computed.
    pub fn kept_bytes(&self, tokens: u64, length: u64) -> u64 {
        let of_ends = self.attention.output.kept_bytes(tokens) + self.feed_forward.output.kept_bytes(tokens);
        self.attention.kept_bytes(tokens, length) + of_ends
    }

    /// Memory saved for backward, including the output.
    pub fn saved(&self) -> Footprint {
        self.attention.saved() + self.attention.output.saved() + self.feed_forward.saved()
    }

    /// As [`Self::saved`], if rows are chosen: their rows of the attention output are saved in addition.
    pub fn saved_of_chosen(&self) -> Footprints {
        let chosen = Footprint { values: self.attention.query.outputs as u64, statistics_bytes: 0 };
        let of_chosen = chosen + self.attention.output.saved() + self.feed_forward.saved();
        Footprints { of_tokens: self.attention.saved(), of_chosen }
    }

    /// Peak of the memory that backward needs in addition. Freed blocks are cached by size, so the peaks of
    /// both blocks add up although they occur at different moments.
    pub fn temporary(&self) -> Footprint {
        self.attention.temporary() + self.feed_forward.temporary()
    }

    /// As [`Self::temporary`], if rows are chosen. A head with as many rows has tensors of a different width,
    /// so its memory is counted separately.
    pub fn temporary_of_chosen(&self) -> Footprints {
        Footprints { of_tokens: self.attention.temporary(), of_chosen: self.feed_forward.temporary() }
    }

    /// Hidden states after the layer, of the chosen rows if rows are chosen. `shared` is the table of
    /// relative positions, for attention that uses it.
    pub fn forward(
        &self,
        x: &Stream,
        shared: Option<&SharedPositions>,
        chosen: Option<Chosen<'_>>,
        ctx: &Context<'_>,
    ) -> Result<(Stream, Saved)> {
        let (middle, attention) = self.attention.forward(x, shared, chosen, ctx)?;
        let (y, feed_forward) = self.feed_forward.forward(&middle, &ctx.for_rows(chosen))?;
        Ok((y, Saved { attention, feed_forward }))
    }

    /// Gradient of the layer's input; the gradient of the table of relative positions is added to `shared`.
    pub fn backward(
        &self,
        gradient: &Stream,
        saved: &Saved,
        shared: Option<&mut SharedPositions>,
        chosen: Option<Chosen<'_>>,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<Stream> {
        let of_chosen = ctx.for_rows(chosen);
        let d_middle = self.feed_forward.backward(gradient, &saved.feed_forward, &of_chosen, gradients)?;
        self.attention.backward(&d_middle, &saved.attention, shared, chosen, ctx, gradients)
    }
}
