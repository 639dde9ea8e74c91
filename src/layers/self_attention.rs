//! Self-attention of an encoder layer: projections, attention, output map, dropout + residual + `LayerNorm`.

use candle_core::Result;
use candle_core::Tensor;

use crate::layers::Context;
use crate::layers::Footprint;
use crate::layers::Gradients;
use crate::layers::Registry;
use crate::layers::Site;
use crate::layers::linear::Linear;
use crate::layers::output_block;
use crate::layers::output_block::OutputBlock;
use crate::layers::output_block::OutputSizes;
use crate::ops::attention;
use crate::ops::attention::Activations;
use crate::ops::dropout::Dropout;
use crate::ops::linear;

/// Sizes and dropout of the attention block of layer `layer`.
#[derive(Debug, Clone, Copy)]
pub struct AttentionSizes {
    /// Index of the layer, for its dropout streams.
    pub layer: usize,
    /// D.
    pub hidden: usize,
    /// H.
    pub heads: usize,
    /// Dropout of the probabilities.
    pub probability_dropout: f64,
    /// Dropout of the output.
    pub hidden_dropout: f64,
    /// Added to the variance in `LayerNorm`.
    pub eps: f64,
}

/// The attention block.
#[derive(Debug, Clone)]
pub struct SelfAttention {
    sizes: AttentionSizes,
    query: Linear,
    key: Linear,
    value: Linear,
    output: OutputBlock,
}

/// What backward needs.
#[derive(Debug)]
pub struct Saved {
    x: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    attention: attention::Saved,
    output: output_block::Saved,
}

impl SelfAttention {
    /// Registers `<name>.self.{query,key,value}` and `<name>.output.{dense,LayerNorm}`.
    pub fn new(registry: &mut Registry, name: &str, sizes: AttentionSizes) -> Self {
        let d = sizes.hidden;
        let output = OutputSizes {
            inputs: d,
            hidden: d,
            site: Site::AttentionOutput(sizes.layer),
            dropout: sizes.hidden_dropout,
            eps: sizes.eps,
        };
        Self {
            query: Linear::new(registry, &format!("{name}.self.query"), d, d),
            key: Linear::new(registry, &format!("{name}.self.key"), d, d),
            value: Linear::new(registry, &format!("{name}.self.value"), d, d),
            output: OutputBlock::new(registry, &format!("{name}.output"), output),
            sizes,
        }
    }

    /// Floating-point operations for each token of segments of mean length `mean_length`.
    pub fn flops(&self, mean_length: f64) -> f64 {
        let maps = [self.query, self.key, self.value].iter().map(Linear::flops).sum::<f64>();
        maps + self.output.flops() + 12.0 * mean_length * self.sizes.hidden as f64
    }

    /// What is kept for backward: q, k, v, the attention output, the log-sum-exp of each head, and the end of
    /// the block. The input is the output of the layer before.
    pub fn saved(&self) -> Footprint {
        let AttentionSizes { hidden, heads, .. } = self.sizes;
        self.output.saved() + Footprint { values: 4 * hidden as u64, statistics_bytes: 4 * heads as u64 }
    }

    /// The most that backward needs besides: the gradients of the block's output and of its middle, of the
    /// attention output, of the input, of q, k and v, while the hidden states behind the block are gone.
    pub fn temporary(&self) -> Footprint {
        Footprint { values: 6 * self.sizes.hidden as u64, statistics_bytes: 0 }
    }

    /// `LayerNorm(x + dropout(attention(x)))`, `[T, D]`.
    pub fn forward(&self, x: &Tensor, ctx: &Context<'_>) -> Result<(Tensor, Saved)> {
        let (q, k, v) = (self.query.forward(x, ctx)?, self.key.forward(x, ctx)?, self.value.forward(x, ctx)?);
        let dropout = self.probability_dropout(ctx);
        let (o, attention) =
            attention::forward(&q, &k, &v, &ctx.segments(self.sizes.heads, dropout.as_ref()))?;
        let (y, output) = self.output.forward(&o, x, ctx)?;
        Ok((y, Saved { x: x.clone(), q, k, v, o, attention, output }))
    }

    /// Gradient of the input, `[T, D]`.
    pub fn backward(
        &self,
        dy: &Tensor,
        saved: &Saved,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<Tensor> {
        let (d_out, dx) = self.output.backward(dy, &saved.o, &saved.output, ctx, gradients)?;
        let dropout = self.probability_dropout(ctx);
        let activations = Activations { q_td: &saved.q, k_td: &saved.k, v_td: &saved.v, o_td: &saved.o };
        let segments = ctx.segments(self.sizes.heads, dropout.as_ref());
        let [dq, dk, dv] = attention::backward(&d_out, activations, &saved.attention, &segments)?;
        for (map, d) in [(&self.query, &dq), (&self.key, &dk), (&self.value, &dv)] {
            map.backward_parameters(d, &saved.x, gradients)?;
        }
        // The input feeds four paths: the gradients of three meet in one sum, added to the residual's.
        let weight = |map: &Linear| ctx.parameters.compute(map.weight);
        let maps = [(&dq, weight(&self.query)), (&dk, weight(&self.key)), (&dv, weight(&self.value))];
        linear::backward_inputs_accumulate(&maps, &dx)?;
        Ok(dx)
    }

    fn probability_dropout(&self, ctx: &Context<'_>) -> Option<Dropout> {
        ctx.dropout_at(Site::AttentionProbabilities(self.sizes.layer), self.sizes.probability_dropout)
    }
}
