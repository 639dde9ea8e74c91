//! Input embeddings: word + position + token type (the last two if the model has these tables), norm,
//! dropout.

use candle_core::{Result, Tensor};

use crate::layers::norm::Norm;
use crate::layers::{Context, Footprint, Gradients, NormPlacement, ParameterId, Site, Stream};
use ops::computed::AnyIndices;
use ops::indices::Indices;
use ops::{add, dropout, embedding, layer_norm};

/// The ids of `T` tokens.
#[derive(Debug, Clone, Copy)]
pub struct TokenIds<'a> {
    /// Row of the word table, `[T]`.
    pub ids: AnyIndices<'a>,
    /// Row of the position table, including the family's offset, `[T]`.
    pub position_ids: Indices<'a>,
    /// Row of the token type table, `[T]`.
    pub token_type_ids: Indices<'a>,
}

/// The embedding tables and their norm.
#[derive(Debug, Clone)]
pub struct Embeddings {
    /// Word table, `[V, E]`; also the weight of the masked-LM decoder.
    pub word: ParameterId,
    /// Word table `[V, E]` of another model, whose rows are added, and which gets no gradient from this
    /// model.
    pub shared_word: Option<ParameterId>,
    /// Position table, `[P, E]`, if there is one.
    pub position: Option<ParameterId>,
    /// Token type table, `[types, E]`, if there is one.
    pub token_type: Option<ParameterId>,
    /// Norm of the sum.
    pub norm: Norm,
    /// Position of the norm: after the embeddings, or before the first layer, whose residual is the sum.
    pub placement: NormPlacement,
    /// E: the width of the tables.
    pub width: usize,
    /// Row of the word table that gets no gradient.
    pub word_padding: Option<u32>,
    /// Row of the position table that gets no gradient.
    pub position_padding: Option<u32>,
    /// Dropout of the normed sum; models with a norm before the first layer have none.
    pub hidden_dropout: f64,
}

/// Values saved for the backward pass.
#[derive(Debug)]
pub struct Saved {
    sum_td: Tensor,
    norm: layer_norm::Saved,
}

impl Embeddings {
    /// Memory saved for backward: the sum of the tables, the norm's moments, and the output.
    pub fn saved(&self) -> Footprint {
        Footprint { values: 2 * self.width as u64, statistics_bytes: self.norm.form.saved_bytes() }
    }

    /// Returns the embeddings of the tokens, `[T, E]`.
    pub fn forward(&self, tokens: TokenIds<'_>, ctx: &Context<'_>) -> Result<(Stream, Saved)> {
        let parameters = ctx.parameters;
        let tables = embedding::Tables {
            word_vd: parameters.get(self.word),
            position_pd: self.position.map(|id| parameters.get(id)),
            type_nd: self.token_type.map(|id| parameters.get(id)),
        };
        let dtype = ctx.parameters.compute_dtype();
        let mut sum_td = embedding::forward(op_ids(tokens), &tables, dtype)?;
        if let Some(shared) = self.shared_word {
            let shared =
                embedding::Tables { word_vd: parameters.get(shared), position_pd: None, type_nd: None };
            sum_td = add::sum(&sum_td, &embedding::forward(op_ids(tokens), &shared, dtype)?)?;
        }
        let (y, norm) = self.norm.forward(&sum_td, ctx)?;
        let dropped = dropout::forward(
            &y,
            ctx.rows.token_keys,
            ctx.dropout_at(Site::Embeddings, self.hidden_dropout).as_ref(),
        )?;
        Ok((self.placement.stream(dropped, &sum_td), Saved { sum_td, norm }))
    }

    /// Accumulates the gradients of the tables and the norm.
    pub fn backward(
        &self,
        gradient: &Stream,
        tokens: TokenIds<'_>,
        saved: &Saved,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<()> {
        let d_norm = dropout::backward(
            &gradient.input,
            ctx.rows.token_keys,
            ctx.dropout_at(Site::Embeddings, self.hidden_dropout).as_ref(),
        )?;
        let mut d_sum = self.norm.backward(&d_norm, &saved.sum_td, &saved.norm, ctx, gradients)?;
        if let Some(past_norm) = self.placement.past_norm(gradient)? {
            d_sum = add::sum(&d_sum, past_norm)?;
        }
        let tables = embedding::Tables {
            word_vd: gradients.get(self.word)?,
            position_pd: self.position.map(|id| gradients.get(id)).transpose()?,
            type_nd: self.token_type.map(|id| gradients.get(id)).transpose()?,
        };
        embedding::backward(
            &d_sum,
            op_ids(tokens),
            &tables,
            embedding::Padding { word: self.word_padding, position: self.position_padding },
        )
    }
}

fn op_ids(tokens: TokenIds<'_>) -> embedding::Ids<'_> {
    embedding::Ids { word: tokens.ids, position: tokens.position_ids, token_type: tokens.token_type_ids }
}
