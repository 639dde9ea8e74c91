//! One encoder layer: self-attention, then feed-forward.

use candle_core::Result;

use crate::layers::Chosen;
use crate::layers::Context;
use crate::layers::Footprint;
use crate::layers::Footprints;
use crate::layers::Gradients;
use crate::layers::NormPlacement;
use crate::layers::Site;
use crate::layers::Stream;
use crate::layers::feed_forward;
use crate::layers::feed_forward::FeedForward;
use crate::layers::relative_positions::SharedPositions;
use crate::layers::self_attention;
use crate::layers::self_attention::Positions;
use crate::layers::self_attention::SelfAttention;

/// One layer.
#[derive(Debug, Clone)]
pub struct EncoderLayer {
    /// First block.
    pub attention: SelfAttention,
    /// Second block.
    pub feed_forward: FeedForward,
}

/// What backward needs.
#[derive(Debug)]
pub struct Saved {
    attention: self_attention::Saved,
    feed_forward: feed_forward::Saved,
}

impl EncoderLayer {
    /// The same layer, with the same parameters, as number `layer` of a model that repeats it: dropout is its
    /// own.
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

    /// Floating-point operations of `tokens` tokens of segments of mean length `mean_length`, of which `chosen`
    /// go on behind attention.
    pub fn flops(&self, tokens: f64, mean_length: f64, chosen: f64) -> f64 {
        let of_chosen = self.attention.output.flops() + self.feed_forward.flops();
        tokens * self.attention.flops(mean_length) + chosen * of_chosen
    }

    /// What it takes of a layer like it: hidden states, and beside them what they are the norm of where norms
    /// stand before their blocks.
    pub fn input(&self) -> Footprint {
        let tensors = match self.feed_forward.output.placement {
            NormPlacement::After => 1,
            NormPlacement::Before => 2,
        };
        Footprint { values: tensors * self.feed_forward.output.dense.outputs as u64, statistics_bytes: 0 }
    }

    /// Bytes of the decisions of dropout that a GPU saves for `tokens` tokens in segments of `length`, with
    /// those of all rows where rows are chosen.
    pub fn kept_bytes(&self, tokens: u64, length: u64) -> u64 {
        let of_ends = self.attention.output.kept_bytes(tokens) + self.feed_forward.output.kept_bytes(tokens);
        self.attention.kept_bytes(tokens, length) + of_ends
    }

    /// What is kept for backward, the output included.
    pub fn saved(&self) -> Footprint {
        self.attention.saved() + self.attention.output.saved() + self.feed_forward.saved()
    }

    /// The same where rows are chosen: these of the attention output are kept beside it.
    pub fn saved_of_chosen(&self) -> Footprints {
        let chosen = Footprint { values: self.attention.query.outputs as u64, statistics_bytes: 0 };
        let of_chosen = chosen + self.attention.output.saved() + self.feed_forward.saved();
        Footprints { of_tokens: self.attention.saved(), of_chosen }
    }

    /// The most that backward needs besides. Freed blocks are kept by size, so that the peaks of both blocks
    /// add up although they fall at different moments.
    pub fn temporary(&self) -> Footprint {
        self.attention.temporary() + self.feed_forward.temporary()
    }

    /// The same where rows are chosen, beside what a head takes of as many rows of its own width.
    pub fn temporary_of_chosen(&self) -> Footprints {
        Footprints { of_tokens: self.attention.temporary(), of_chosen: self.feed_forward.temporary() }
    }

    /// Hidden states behind the layer, of the chosen rows where there are some; `shared` is the table of
    /// relative positions, for attention that has them.
    pub fn forward(
        &self,
        x: &Stream,
        shared: Option<&SharedPositions>,
        chosen: Option<Chosen<'_>>,
        ctx: &Context<'_>,
    ) -> Result<(Stream, Saved)> {
        let (middle, attention) = self.attention.forward(x, shared, chosen, ctx)?;
        let (y, feed_forward) = self.feed_forward.forward(&middle, &ctx.at(chosen))?;
        Ok((y, Saved { attention, feed_forward }))
    }

    /// Gradient of what the layer began with; that of the table of relative positions is added to `shared`.
    pub fn backward(
        &self,
        gradient: &Stream,
        saved: &Saved,
        shared: Option<&mut SharedPositions>,
        chosen: Option<Chosen<'_>>,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<Stream> {
        let of_chosen = ctx.at(chosen);
        let d_middle = self.feed_forward.backward(gradient, &saved.feed_forward, &of_chosen, gradients)?;
        self.attention.backward(&d_middle, &saved.attention, shared, chosen, ctx, gradients)
    }
}
