//! Self-attention of an encoder layer: projections, positions, attention, and the end of the block.

use std::sync::Arc;

use candle_core::Result;
use candle_core::Tensor;
use candle_core::bail;

use crate::layers::Chosen;
use crate::layers::Context;
use crate::layers::Footprint;
use crate::layers::Gradients;
use crate::layers::Site;
use crate::layers::Stream;
use crate::layers::linear;
use crate::layers::linear::Linear;
use crate::layers::output_block;
use crate::layers::output_block::OutputBlock;
use crate::layers::relative_positions;
use crate::layers::relative_positions::RelativePositions;
use crate::layers::relative_positions::SharedPositions;
use crate::ops::attention;
use crate::ops::attention::Activations;
use crate::ops::biased_attention;
use crate::ops::disentangled_attention;
use crate::ops::dropout::Dropout;
use crate::ops::rotary;
use crate::ops::rotary::Angles;
use crate::ops::rotary::Direction;

/// How attention learns where tokens stand, beside what their embeddings say of it.
#[derive(Debug, Clone)]
pub enum Positions {
    /// It does not.
    Absolute,
    /// Queries and keys are turned by angles that grow with their place.
    Rotary(Arc<Angles>),
    /// Queries and keys meet a table of relative positions, too.
    Relative(Box<RelativePositions>),
    /// A table, that all layers share, says what each distance adds to the scores of a head.
    Biased,
}

impl Positions {
    /// Turns queries or keys in place, or their gradients back.
    fn turn(&self, x_td: &Tensor, heads: usize, ctx: &Context<'_>, direction: Direction) -> Result<()> {
        match self {
            Self::Absolute | Self::Relative(_) | Self::Biased => Ok(()),
            Self::Rotary(angles) => rotary::rotate(x_td, heads, ctx.rows.cu_seqlens, angles, direction),
        }
    }
}

/// The attention block.
#[derive(Debug, Clone)]
pub struct SelfAttention {
    /// H.
    pub heads: usize,
    /// Where tokens stand.
    pub positions: Positions,
    /// The farthest that a token attends to either side; `None` for its whole segment.
    pub window: Option<usize>,
    /// Dropout of the probabilities.
    pub dropout: f64,
    /// Where it draws from.
    pub site: Site,
    /// Queries.
    pub query: Linear,
    /// Keys.
    pub key: Linear,
    /// Values.
    pub value: Linear,
    /// The end of the block.
    pub output: OutputBlock,
}

/// What backward needs.
#[derive(Debug)]
pub struct Saved {
    x: Stream,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attended: Attended,
    /// The chosen rows of its output.
    of_output: Tensor,
    output: output_block::Saved,
}

/// Queries, keys and values, turned where positions are angles, `[T, D]`.
#[derive(Clone, Copy)]
pub(super) struct Qkv<'a> {
    pub(super) q: &'a Tensor,
    pub(super) k: &'a Tensor,
    pub(super) v: &'a Tensor,
}

/// What attention makes of them, and what its backward needs besides.
#[derive(Debug)]
pub(super) struct Attended {
    /// `[T, D]`.
    pub(super) o: Tensor,
    attention: attention::Saved,
    /// Of relative positions that meet queries and keys.
    projected: Option<relative_positions::Projected>,
}

impl SelfAttention {
    /// Floating-point operations before the end of the block, for each token of segments of mean length
    /// `mean_length`.
    pub fn flops(&self, mean_length: f64) -> f64 {
        let maps = [self.query, self.key, self.value].iter().map(Linear::flops).sum::<f64>();
        let seen = self.window.map_or(mean_length, |window| mean_length.min(2.0 * window as f64 + 1.0));
        let relative = self.relative().map_or(0.0, |relative| relative.flops(mean_length));
        maps + 12.0 * seen * self.query.outputs as f64 + relative
    }

    /// What is kept for backward before the end of the block: q, k, v, the attention output, and the
    /// log-sum-exp of each head. The input is the output of the layer before.
    pub fn saved(&self) -> Footprint {
        let (hidden, heads) = (self.query.outputs as u64, self.heads as u64);
        Footprint { values: 4 * hidden, statistics_bytes: 4 * heads }
    }

    /// Bytes that a GPU keeps besides: which probabilities of `tokens` tokens in segments of `length` are
    /// dropped.
    pub fn kept_bytes(&self, tokens: u64, length: u64) -> u64 {
        if self.dropout > 0.0 { attention::kept_bytes(self.heads as u64, tokens, length) } else { 0 }
    }

    /// The most that backward needs besides: the gradients of the block's output and of its middle, of the
    /// attention output, of the input, of q, k and v, while the hidden states behind the block are gone; and
    /// of a bias, on a GPU, what each 16 tokens come to for its table.
    pub fn temporary(&self) -> Footprint {
        let of_table = match self.positions {
            Positions::Biased => 4 * (biased_attention::ROWS * self.heads / 16) as u64,
            _ => 0,
        };
        Footprint { values: 6 * self.query.outputs as u64, statistics_bytes: of_table }
    }

    /// Its relative positions, where queries and keys meet them.
    pub fn relative(&self) -> Option<&RelativePositions> {
        match &self.positions {
            Positions::Absolute | Positions::Rotary(_) | Positions::Biased => None,
            Positions::Relative(relative) => Some(relative),
        }
    }

    /// The residual plus `dropout(attention(x))`, and its norm; where rows are chosen, of these alone.
    pub fn forward(
        &self,
        x: &Stream,
        shared: Option<&SharedPositions>,
        chosen: Option<Chosen<'_>>,
        ctx: &Context<'_>,
    ) -> Result<(Stream, Saved)> {
        let [q, k, v] = linear::forward_maps([&self.query, &self.key, &self.value], &x.input, ctx)?;
        for turned in [&q, &k] {
            self.positions.turn(turned, self.heads, ctx, Direction::Forward)?;
        }
        let attended = self.attend(Qkv { q: &q, k: &k, v: &v }, shared, ctx)?;
        let (of_output, residual) = (Chosen::of(chosen, &attended.o)?, Chosen::of(chosen, x.residual())?);
        let (y, output) = self.output.forward(&of_output, &residual, &ctx.at(chosen))?;
        Ok((y, Saved { x: x.clone(), q, k, v, attended, of_output, output }))
    }

    /// Attention between its maps.
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
            Positions::Biased => (biased_attention::forward(q, k, v, &given(shared)?.rows, &segments)?, None),
            Positions::Relative(relative) => {
                let projected = relative.forward(&given(shared)?.rows, ctx)?;
                let positions = relative.relative(&projected);
                (disentangled_attention::forward(q, k, v, &positions, &segments)?, Some(projected))
            }
        };
        Ok(Attended { o, attention, projected })
    }

    /// Gradient of what the block began with; that of the table of relative positions is added to `shared`.
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
        let (d_out, d_residual) =
            self.output.backward(gradient, &saved.of_output, &saved.output, &of_chosen, gradients)?;
        let tokens = saved.q.dim(0)?;
        let d_out = Chosen::backward(chosen, d_out, tokens)?;
        let d_residual = Chosen::backward(chosen, d_residual, tokens)?;
        let given = Qkv { q: &saved.q, k: &saved.k, v: &saved.v };
        let [dq, dk, dv] = self.attend_backward(&d_out, given, &saved.attended, shared, ctx, gradients)?;
        for turned in [&dq, &dk] {
            self.positions.turn(turned, self.heads, ctx, Direction::Backward)?;
        }
        let maps = [(&self.query, &dq), (&self.key, &dk), (&self.value, &dv)];
        linear::backward_parameters_of_maps(maps, &saved.x.input, gradients)?;
        let weight = |map: &Linear| ctx.parameters.compute(map.weight);
        let maps = [(&dq, weight(&self.query)), (&dk, weight(&self.key)), (&dv, weight(&self.value))];
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
                let shared = given(shared)?;
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
                relative.backward(of_positions, projected, given(shared)?, ctx, gradients)?;
                Ok(of_contents)
            }
            _ => attention::backward(d_out, activations, attention, &segments),
        }
    }

    fn probability_dropout(&self, ctx: &Context<'_>) -> Option<Dropout> {
        ctx.dropout_at(self.site, self.dropout)
    }
}

/// What the encoder shares among its layers.
fn given<P>(shared: Option<P>) -> Result<P> {
    let Some(shared) = shared else { bail!("attention with relative positions was given no table of them") };
    Ok(shared)
}
