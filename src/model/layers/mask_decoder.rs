//! DeBERTa's enhanced mask decoder (He et al. 2021, section 3.2; `EnhancedMaskDecoder` of microsoft/DeBERTa).
//!
//! A masked language model runs its last layer twice instead of once. In both passes, keys and values are
//! made from the hidden states before that layer. Queries are made from these hidden states plus absolute
//! positions in the first pass, and from the output of the first pass in the second. A classifier with the
//! same encoder does not use the decoder.

use candle_core::{Result, Tensor};

use crate::layers::embeddings::TokenIds;
use crate::layers::encoder_layer::EncoderLayer;
use crate::layers::relative_positions::SharedPositions;
use crate::layers::self_attention::{Attended, Qkv};
use crate::layers::{
    Chosen, Context, Footprint, Footprints, Gradients, ParameterId, feed_forward, linear, output_block,
};
use ops::{add, embedding};

/// The decoder. It replaces the last layer of an encoder with post-norm layers.
#[derive(Debug, Clone)]
pub struct MaskDecoder {
    /// Table of absolute positions, `[P, D]`.
    position: ParameterId,
    /// The last layer, once for each pass: their dropout differs.
    passes: [EncoderLayer; 2],
}

/// Values saved for the backward pass.
#[derive(Debug)]
pub struct Saved {
    x_td: Tensor,
    k_td: Tensor,
    v_td: Tensor,
    passes: [SavedPass; 2],
}

/// Values saved of one pass.
#[derive(Debug)]
struct SavedPass {
    /// The rows from which queries are made, `[M, D]`.
    query_input_md: Tensor,
    q_td: Tensor,
    attended: Attended,
    /// The chosen rows of the attention output.
    of_output: Tensor,
    output: output_block::Saved,
    feed_forward: feed_forward::Saved,
}

impl MaskDecoder {
    /// A decoder that repeats `last`, the last of `layers` layers, with the table `position`.
    pub fn new(last: &EncoderLayer, layers: usize, position: ParameterId) -> Self {
        Self { position, passes: [last.clone(), last.again_as(layers)] }
    }

    /// Both passes, as layers.
    pub fn passes(&self) -> &[EncoderLayer; 2] {
        &self.passes
    }

    /// Floating-point operations for `tokens` tokens in segments of mean length `mean_length`, of which
    /// `chosen` have queries.
    pub fn flops(&self, tokens: f64, mean_length: f64, chosen: f64) -> f64 {
        let [first, _] = &self.passes;
        let attention = &first.attention;
        let query = attention.query.flops();
        let of_contents = attention.key.flops() + attention.value.flops();
        let scores = attention.flops(mean_length) - query - of_contents;
        let of_chosen = query + attention.output.flops() + first.feed_forward.flops();
        tokens * (of_contents + 2.0 * scores) + 2.0 * chosen * of_chosen
    }

    /// Memory saved for backward, including the output: per token keys and values, and for each pass queries
    /// and attention output; per chosen row the input of the queries, the attention output, and the two
    /// blocks.
    pub fn saved(&self) -> Footprints {
        let [first, _] = &self.passes;
        let hidden = first.attention.query.outputs as u64;
        let two_values = Footprint { values: 2 * hidden, statistics_bytes: 0 };
        let attention = first.attention.saved();
        let of_pass = two_values + first.attention.output.saved() + first.feed_forward.saved();
        Footprints {
            of_tokens: two_values
                + Footprint { values: 4 * hidden, statistics_bytes: 2 * attention.statistics_bytes },
            of_chosen: of_pass + of_pass,
        }
    }

    /// Hidden states of the chosen rows, for a masked-LM head; every row is chosen at most once. `shared` is
    /// the table of relative positions.
    pub fn forward(
        &self,
        x_td: &Tensor,
        (tokens, chosen): (TokenIds<'_>, Option<Chosen<'_>>),
        shared: Option<&SharedPositions>,
        ctx: &Context<'_>,
    ) -> Result<(Tensor, Saved)> {
        let attention = &self.passes[0].attention;
        let [k_td, v_td] = linear::forward_maps([&attention.key, &attention.value], x_td, ctx)?;
        let table = embedding::Tables {
            word_vd: ctx.parameters.get(self.position),
            position_pd: None,
            type_nd: None,
        };
        let position_td = embedding::forward(positions(tokens), &table, x_td.dtype())?;
        let query_input = add::sum(&Chosen::gather(chosen, x_td)?, &Chosen::gather(chosen, &position_td)?)?;
        let (between, first) = self.pass(0, query_input, [&k_td, &v_td], shared, chosen, ctx)?;
        let (y_md, second) = self.pass(1, between, [&k_td, &v_td], shared, chosen, ctx)?;
        Ok((y_md, Saved { x_td: x_td.clone(), k_td, v_td, passes: [first, second] }))
    }

    fn pass(
        &self,
        number: usize,
        query_input_md: Tensor,
        [k_td, v_td]: [&Tensor; 2],
        shared: Option<&SharedPositions>,
        chosen: Option<Chosen<'_>>,
        ctx: &Context<'_>,
    ) -> Result<(Tensor, SavedPass)> {
        let EncoderLayer { attention, feed_forward } = &self.passes[number];
        let q_md = attention.query.forward(&query_input_md, ctx)?;
        // Rows that are not chosen have queries of zero, and their output is not read.
        let q_td = Chosen::backward(chosen, q_md, k_td.dim(0)?)?;
        let attended = attention.attend(Qkv { q: &q_td, k: k_td, v: v_td }, shared, ctx)?;
        let of_output = Chosen::gather(chosen, &attended.o)?;
        let of_chosen = ctx.for_rows(chosen);
        let (middle, output) = attention.output.forward(&of_output, &query_input_md, &of_chosen)?;
        let (y, feed_forward) = feed_forward.forward(&middle, &of_chosen)?;
        Ok((y.input, SavedPass { query_input_md, q_td, attended, of_output, output, feed_forward }))
    }

    /// Gradient of the hidden states that [`Self::forward`] took; the gradient of the table of relative
    /// positions is added to `shared`.
    pub fn backward(
        &self,
        dy_md: Tensor,
        (tokens, chosen): (TokenIds<'_>, Option<Chosen<'_>>),
        saved: &Saved,
        mut shared: Option<&mut SharedPositions>,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<Tensor> {
        let (d_between, [dk_second, dv_second]) =
            self.pass_backward((1, saved), dy_md, shared.as_deref_mut(), chosen, ctx, gradients)?;
        let (d_query_input, [dk_first, dv_first]) =
            self.pass_backward((0, saved), d_between, shared, chosen, ctx, gradients)?;
        let dk = add::sum(&dk_first, &dk_second)?;
        let dv = add::sum(&dv_first, &dv_second)?;
        let dx_td = Chosen::backward(chosen, d_query_input, saved.x_td.dim(0)?)?;
        let table =
            embedding::Tables { word_vd: gradients.get(self.position)?, position_pd: None, type_nd: None };
        embedding::backward(&dx_td, positions(tokens), &table, embedding::Padding::default())?;
        let attention = &self.passes[0].attention;
        let maps = [(&attention.key, &dk), (&attention.value, &dv)];
        linear::backward_parameters_of_maps(maps, &saved.x_td, gradients)?;
        let maps = maps.map(|(map, d)| (d, ctx.parameters.compute(map.weight)));
        Ok(linear::backward_stream(&maps, dx_td, false)?.input)
    }

    /// Gradients of the queries' input, and of keys and values.
    fn pass_backward(
        &self,
        (number, saved): (usize, &Saved),
        dy_md: Tensor,
        shared: Option<&mut SharedPositions>,
        chosen: Option<Chosen<'_>>,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<(Tensor, [Tensor; 2])> {
        let EncoderLayer { attention, feed_forward } = &self.passes[number];
        let pass = &saved.passes[number];
        let of_chosen = ctx.for_rows(chosen);
        let d_middle = feed_forward.backward(&dy_md.into(), &pass.feed_forward, &of_chosen, gradients)?;
        let (d_out, d_query_input) =
            attention.output.backward(&d_middle, &pass.of_output, &pass.output, &of_chosen, gradients)?;
        let d_out = Chosen::backward(chosen, d_out, saved.x_td.dim(0)?)?;
        let given = Qkv { q: &pass.q_td, k: &saved.k_td, v: &saved.v_td };
        let [dq, dk, dv] =
            attention.attend_backward(&d_out, given, &pass.attended, shared, ctx, gradients)?;
        let dq = Chosen::gather(chosen, &dq)?;
        attention.query.backward_parameters(&dq, &pass.query_input_md, gradients)?;
        let maps = [(&dq, ctx.parameters.compute(attention.query.weight))];
        Ok((linear::backward_stream(&maps, d_query_input, false)?.input, [dk, dv]))
    }
}

/// Ids for the lookup in the table of absolute positions, in the place of word ids.
fn positions(tokens: TokenIds<'_>) -> embedding::Ids<'_> {
    embedding::Ids {
        word: tokens.position_ids.into(),
        position: tokens.position_ids,
        token_type: tokens.token_type_ids,
    }
}
