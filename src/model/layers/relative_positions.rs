//! Relative positions: a table that all layers share, and its use in each layer.
//!
//! DeBERTa's table is normed once per pass. Each layer applies dropout and projects it for its attention; the
//! gradients of all layers are added up in f32 and passed through the norm. MPNet's table is added to the
//! attention scores as it is.

use std::sync::Arc;

use candle_core::{DType, Result, Tensor};

use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::layers::{Context, Footprint, Gradients, ParameterId, Site, linear as maps};
use ops::disentangled_attention::{Buckets, Relative};
use ops::dropout::Dropout;
use ops::indices::KeptKeys;
use ops::{add, cuda, dropout, layer_norm, linear};

/// The table of relative positions of an encoder.
#[derive(Debug, Clone)]
pub struct PositionTable {
    /// The table, `[R, width]`.
    pub table: ParameterId,
    /// Norm of the table, if there is one.
    pub norm: Option<Norm>,
    /// Number of rows (R).
    pub rows: usize,
    /// Width of a row: D if layers project it, H if it is added to scores.
    pub width: usize,
    /// True if the table is added to scores, which are f32 in every compute type.
    pub is_bias: bool,
}

/// The table during one pass.
#[derive(Debug)]
pub struct SharedPositions {
    /// The normed table, `[R, width]`: in f32 if it is added to scores, otherwise in the compute type.
    pub rows: Tensor,
    norm: Option<layer_norm::Saved>,
    /// Sum of the gradients that the layers have added so far, f32.
    d_rows: Option<Tensor>,
}

impl PositionTable {
    /// Memory saved for backward per row of the table, in addition to the parameters.
    pub fn saved(&self) -> Footprint {
        Footprint { values: self.width as u64, statistics_bytes: 8 }
    }

    /// Norms the table. The table is so small that this is done in f32 in every compute type.
    pub fn forward(&self, ctx: &Context<'_>) -> Result<SharedPositions> {
        let table = ctx.parameters.get(self.table);
        let (normed, norm) = match &self.norm {
            None => (table.clone(), None),
            Some(norm) => norm.forward(table, ctx).map(|(normed, saved)| (normed, Some(saved)))?,
        };
        let compute = ctx.parameters.compute_dtype();
        let stays = self.is_bias || compute == DType::F32;
        let rows = if stays { normed } else { cuda::rounded(&normed, compute)? };
        Ok(SharedPositions { rows, norm, d_rows: None })
    }

    /// Accumulates the gradients of table and norm, after all layers have added theirs.
    pub fn backward(&self, shared: SharedPositions, ctx: &Context<'_>, gradients: &Gradients) -> Result<()> {
        let Some(mut d_rows) = shared.d_rows else { return Ok(()) };
        if let (Some(norm), Some(saved)) = (&self.norm, &shared.norm) {
            d_rows = norm.backward(&d_rows, ctx.parameters.get(self.table), saved, ctx, gradients)?;
        }
        add::accumulate(&d_rows, gradients.accumulator(self.table))
    }
}

impl SharedPositions {
    /// Adds a layer's gradient of the rows.
    pub(super) fn add(&mut self, d_rows: &Tensor) -> Result<()> {
        match &self.d_rows {
            None => self.d_rows = Some(add::begun(d_rows)?),
            Some(sum) => add::accumulate(d_rows, sum.into())?,
        }
        Ok(())
    }
}

/// The use of the table in one layer.
#[derive(Debug, Clone)]
pub struct RelativePositions {
    /// Maps a distance between tokens to a row of the table.
    pub buckets: Buckets,
    /// Projection to the keys that queries are multiplied with (`c2p`).
    pub key: Option<Linear>,
    /// Projection to the queries that keys are multiplied with (`p2c`).
    pub query: Option<Linear>,
    /// Dropout of the table.
    pub dropout: f64,
    /// The dropout site, which selects the random stream.
    pub site: Site,
    /// Dropout keys of the table's rows.
    pub row_keys: Arc<KeptKeys>,
}

/// The projections of a layer, and their input.
#[derive(Debug)]
pub struct Projected {
    /// The table after dropout, `[R, D]`.
    input: Tensor,
    /// Keys of positions, `[R, D]`.
    keys: Option<Tensor>,
    /// Queries of positions, `[R, D]`.
    queries: Option<Tensor>,
}

impl RelativePositions {
    /// Floating-point operations of the products with positions, per token in segments of mean length
    /// `mean_length`. The projections of the table are not included: they are done once per pass, whatever
    /// the number of tokens.
    pub fn flops(&self, mean_length: f64) -> f64 {
        let reached = self.buckets.reached(mean_length.round() as usize) as f64;
        self.maps().map(|map| 6.0 * reached * map.outputs as f64).sum()
    }

    /// Memory saved for backward per row of the table.
    pub fn saved(&self) -> Footprint {
        let dropped = if self.dropout > 0.0 { self.row_width() } else { 0 };
        let projected = self.maps().map(|map| map.outputs as u64).sum::<u64>();
        Footprint { values: dropped + projected, statistics_bytes: 0 }
    }

    /// Peak of the memory that backward needs in addition, per row: gradients of the projections, of their
    /// input and of the table, and sums in f32.
    pub fn temporary(&self) -> Footprint {
        let projected = self.maps().map(|map| map.outputs as u64).sum::<u64>();
        // The op sums the gradients of both tables in four groups of segments, and the gradient of the table
        // itself needs two sums at a time.
        let width = self.row_width();
        Footprint { values: projected + 2 * width, statistics_bytes: (4 * 2 + 2) * 4 * width }
    }

    /// Memory that a GPU needs in addition in forward, per token in segments of `length` tokens, and twice of
    /// it in backward: the scores of tokens and positions, in each head.
    pub fn position_scores(&self, heads: u64, length: u64) -> Footprint {
        let width = self.buckets.width(length as usize) as u64;
        Footprint { values: self.maps().count() as u64 * heads * width, statistics_bytes: 0 }
    }

    fn row_width(&self) -> u64 {
        self.maps().next().map_or(0, |map| map.inputs as u64)
    }

    fn maps(&self) -> impl Iterator<Item = &Linear> {
        self.key.iter().chain(&self.query)
    }

    fn table_dropout(&self, ctx: &Context<'_>) -> Option<Dropout> {
        ctx.dropout_at(self.site, self.dropout)
    }

    /// Applies dropout to the table and projects it.
    pub(super) fn forward(&self, rows_rd: &Tensor, ctx: &Context<'_>) -> Result<Projected> {
        let keys = self.row_keys.on_device_of(rows_rd)?;
        let input = dropout::forward(rows_rd, keys, self.table_dropout(ctx).as_ref())?;
        let [keys, queries] = match (&self.key, &self.query) {
            (Some(key), Some(query)) => maps::forward_maps([key, query], &input, ctx)?.map(Some),
            (Some(key), None) => [Some(key.forward(&input, ctx)?), None],
            (None, Some(query)) => [None, Some(query.forward(&input, ctx)?)],
            (None, None) => [None, None],
        };
        Ok(Projected { input, keys, queries })
    }

    /// The projected table in the form that the attention op takes.
    pub(super) fn relative<'a>(&'a self, projected: &'a Projected) -> Relative<'a> {
        let Projected { keys, queries, .. } = projected;
        Relative { buckets: &self.buckets, keys_rd: keys.as_ref(), queries_rd: queries.as_ref() }
    }

    /// Accumulates the gradients of the projections, and adds the gradient of the table to that of the other
    /// layers.
    pub(super) fn backward(
        &self,
        [d_keys, d_queries]: [Option<Tensor>; 2],
        projected: &Projected,
        shared: &mut SharedPositions,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<()> {
        let maps = [self.key.as_ref().zip(d_keys), self.query.as_ref().zip(d_queries)];
        match &maps {
            [Some((key, d_keys)), Some((query, d_queries))] => {
                let both = [(*key, d_keys), (*query, d_queries)];
                maps::backward_parameters_of_maps(both, &projected.input, gradients)?;
            }
            maps => maps
                .iter()
                .flatten()
                .try_for_each(|(map, d)| map.backward_parameters(d, &projected.input, gradients))?,
        }
        let mut d_input: Option<Tensor> = None;
        for (map, d) in maps.into_iter().flatten() {
            let weight = ctx.parameters.compute(map.weight);
            match &d_input {
                None => d_input = Some(linear::backward_input(&d, weight)?),
                Some(sum) => linear::backward_inputs_accumulate(&[(&d, weight)], sum)?,
            }
        }
        let Some(d_input) = d_input else { return Ok(()) };
        let keys = self.row_keys.on_device_of(&d_input)?;
        shared.add(&dropout::backward(&d_input, keys, self.table_dropout(ctx).as_ref())?)
    }
}
