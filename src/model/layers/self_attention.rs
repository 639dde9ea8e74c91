//! Self-attention of an encoder layer: projections, positions, attention, and the end of the block.

use std::sync::Arc;

use candle_core::{Result, Tensor, bail};

use crate::layers::linear::Linear;
use crate::layers::output_block::OutputBlock;
use crate::layers::relative_positions::{RelativePositions, SharedPositions};
use crate::layers::{
    Chosen, Context, Footprint, Gradients, Site, Stream, linear, output_block, relative_positions,
};
use ops::attention::Activations;
use ops::dropout::Dropout;
use ops::rotary::{Angles, Direction};
use ops::{attention, biased_attention, disentangled_attention, rotary};

/// The form of positions in attention, in addition to those of the embeddings.
#[derive(Debug, Clone)]
pub enum Positions {
    /// No positions in attention.
    Absolute,
    /// Queries and keys are rotated by angles proportional to their position (RoPE).
    Rotary(Arc<Angles>),
    /// Queries and keys are also multiplied with a table of relative positions.
    Relative(Box<RelativePositions>),
    /// A table shared by all layers contains a number for each distance and head that is added to the scores.
    Biased,
}

impl Positions {
    /// Rotates queries or keys in place, or rotates their gradients back.
    fn rotate(&self, x_td: &Tensor, heads: usize, ctx: &Context<'_>, direction: Direction) -> Result<()> {
        match self {
            Self::Absolute | Self::Relative(_) | Self::Biased => Ok(()),
            Self::Rotary(angles) => rotary::rotate(x_td, heads, ctx.rows.cu_seqlens, angles, direction),
        }
    }
}

/// The attention block.
#[derive(Debug, Clone)]
pub struct SelfAttention {
    /// Number of heads (H).
    pub heads: usize,
    /// Positions in attention.
    pub positions: Positions,
    /// Largest distance to which a token attends on either side; `None` for its whole segment.
    pub window: Option<usize>,
    /// Dropout of the probabilities.
    pub dropout: f64,
    /// The dropout site, which selects the random stream.
    pub site: Site,
    /// Map to queries.
    pub query: Linear,
    /// Map to keys.
    pub key: Linear,
    /// Map to values.
    pub value: Linear,
    /// The end of the block.
    pub output: OutputBlock,
}

/// Values saved for the backward pass.
#[derive(Debug)]
pub struct Saved {
    x: Stream,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attended: Attended,
    /// The chosen rows of the attention output.
    of_output: Tensor,
    output: output_block::Saved,
}

/// Queries, keys and values, rotated in models with RoPE, `[T, D]`.
#[derive(Clone, Copy)]
pub(super) struct Qkv<'a> {
    pub(super) q: &'a Tensor,
    pub(super) k: &'a Tensor,
    pub(super) v: &'a Tensor,
}

/// The output of attention, and the other values that its backward pass needs.
#[derive(Debug)]
pub(super) struct Attended {
    /// Attention output, `[T, D]`.
    pub(super) o: Tensor,
    attention: attention::Saved,
    /// Projected relative positions, if queries and keys are multiplied with them.
    projected: Option<relative_positions::Projected>,
}

impl SelfAttention {
    /// Floating-point operations before the end of the block, per token in segments of mean length
    /// `mean_length`.
    pub fn flops(&self, mean_length: f64) -> f64 {
        let maps = [self.query, self.key, self.value].iter().map(Linear::flops).sum::<f64>();
        let attended = self.window.map_or(mean_length, |window| mean_length.min(2.0 * window as f64 + 1.0));
        let relative = self.relative().map_or(0.0, |relative| relative.flops(mean_length));
        maps + 12.0 * attended * self.query.outputs as f64 + relative
    }

    /// Memory saved for backward before the end of the block: q, k, v, the attention output, and the
    /// log-sum-exp of each head. The input is the output of the layer before.
    pub fn saved(&self) -> Footprint {
        let hidden = self.query.outputs as u64;
        let heads = self.heads as u64;
        Footprint { values: 4 * hidden, statistics_bytes: 4 * heads }
    }

    /// Bytes of the dropout mask of the probabilities that a GPU saves in addition, for `tokens` tokens in
    /// segments of `length`.
    pub fn kept_bytes(&self, tokens: u64, length: u64) -> u64 {
        if self.dropout > 0.0 { attention::kept_bytes(self.heads as u64, tokens, length) } else { 0 }
    }

    /// Peak of the memory that backward needs in addition: the gradients of the block's output and of its
    /// middle, of the attention output, of the input, of q, k and v, while the hidden states after the block
    /// are freed; and for a bias on a GPU, the partial sums of the table's gradient for each 16 tokens.
    pub fn temporary(&self) -> Footprint {
        let of_table = match self.positions {
            Positions::Biased => 4 * (biased_attention::ROWS * self.heads / 16) as u64,
            _ => 0,
        };
        Footprint { values: 6 * self.query.outputs as u64, statistics_bytes: of_table }
    }

    /// The relative positions of this layer, if queries and keys are multiplied with them.
    pub fn relative(&self) -> Option<&RelativePositions> {
        match &self.positions {
            Positions::Absolute | Positions::Rotary(_) | Positions::Biased => None,
            Positions::Relative(relative) => Some(relative),
        }
    }

    /// The residual plus `dropout(attention(x))`, and its norm; only of the chosen rows if rows are chosen.
    pub fn forward(
        &self,
        x: &Stream,
        shared: Option<&SharedPositions>,
        chosen: Option<Chosen<'_>>,
        ctx: &Context<'_>,
    ) -> Result<(Stream, Saved)> {
        let [q, k, v] = linear::forward_maps([&self.query, &self.key, &self.value], &x.input, ctx)?;
        for rotated in [&q, &k] {
            self.positions.rotate(rotated, self.heads, ctx, Direction::Forward)?;
        }
        let attended = self.attend(Qkv { q: &q, k: &k, v: &v }, shared, ctx)?;
        let of_output = Chosen::gather(chosen, &attended.o)?;
        let residual = Chosen::gather(chosen, x.residual())?;
        let (y, output) = self.output.forward(&of_output, &residual, &ctx.for_rows(chosen))?;
        Ok((y, Saved { x: x.clone(), q, k, v, attended, of_output, output }))
    }

    /// Attention without its maps.
    pub(super) fn attend(
        &self,
        Qkv { q, k, v }: Qkv<'_>,
        shared: Option<&SharedPositions>,
        ctx: &Context<'_>,
    ) -> Result<Attended> {
        let dropout = self.probability_dropout(ctx);
        let segments = ctx.segments(self.heads, self.window, dropout.as_ref());
        let ((o, attention), projected) = match &self.positions {
            Positions::Absolute | Positions::Rotary(_) => (attention::forward(q, k, v, &segments)?, None),
            Positions::Biased => {
                (biased_attention::forward(q, k, v, &require_table(shared)?.rows, &segments)?, None)
            }
            Positions::Relative(relative) => {
                let projected = relative.forward(&require_table(shared)?.rows, ctx)?;
                let positions = relative.relative(&projected);
                (disentangled_attention::forward(q, k, v, &positions, &segments)?, Some(projected))
            }
        };
        Ok(Attended { o, attention, projected })
    }

    /// Gradient of the block's input; the gradient of the table of relative positions is added to `shared`.
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
        let (d_out, d_residual) =
            self.output.backward(gradient, &saved.of_output, &saved.output, &of_chosen, gradients)?;
        let tokens = saved.q.dim(0)?;
        let d_out = Chosen::backward(chosen, d_out, tokens)?;
        let d_residual = Chosen::backward(chosen, d_residual, tokens)?;
        let given = Qkv { q: &saved.q, k: &saved.k, v: &saved.v };
        let [dq, dk, dv] = self.attend_backward(&d_out, given, &saved.attended, shared, ctx, gradients)?;
        for rotated in [&dq, &dk] {
            self.positions.rotate(rotated, self.heads, ctx, Direction::Backward)?;
        }
        let maps = [(&self.query, &dq), (&self.key, &dk), (&self.value, &dv)];
        linear::backward_parameters_of_maps(maps, &saved.x.input, gradients)?;
        let maps = maps.map(|(map, d)| (d, ctx.parameters.compute(map.weight)));
        linear::backward_stream(&maps, d_residual, saved.x.residual.is_some())
    }

    /// Gradients of queries, keys and values; those of relative positions accumulate.
    pub(super) fn attend_backward(
        &self,
        d_out: &Tensor,
        Qkv { q, k, v }: Qkv<'_>,
        Attended { o, attention, projected }: &Attended,
        shared: Option<&mut SharedPositions>,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<[Tensor; 3]> {
        let dropout = self.probability_dropout(ctx);
        let activations = Activations { q_td: q, k_td: k, v_td: v, o_td: o };
        let segments = ctx.segments(self.heads, self.window, dropout.as_ref());
        match (&self.positions, projected) {
            (Positions::Biased, _) => {
                let shared = require_table(shared)?;
                let biased_attention::InputGradients { of_contents, dbias_rh } =
                    biased_attention::backward(d_out, activations, &shared.rows, attention, &segments)?;
                shared.add(&dbias_rh)?;
                Ok(of_contents)
            }
            (Positions::Relative(relative), Some(projected)) => {
                let positions = relative.relative(projected);
                let disentangled_attention::InputGradients { of_contents, dkeys_rd, dqueries_rd } =
                    disentangled_attention::backward(d_out, activations, &positions, attention, &segments)?;
                let of_positions = [dkeys_rd, dqueries_rd];
                relative.backward(of_positions, projected, require_table(shared)?, ctx, gradients)?;
                Ok(of_contents)
            }
            _ => attention::backward(d_out, activations, attention, &segments),
        }
    }

    fn probability_dropout(&self, ctx: &Context<'_>) -> Option<Dropout> {
        ctx.dropout_at(self.site, self.dropout)
    }
}

/// The table that the layers share; an error if the encoder passed none.
fn require_table<P>(shared: Option<P>) -> Result<P> {
    let Some(shared) = shared else { bail!("attention with relative positions was given no table of them") };
    Ok(shared)
}
