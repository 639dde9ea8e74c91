//! Sum of three embeddings: `y[t] = word[ids[t]] + position[position_ids[t]] + type[token_type_ids[t]]`. The
//! last two tables may be absent.
//!
//! | value | shape | gradient |
//! |---|---|---|
//! | `word`, `position`, `type` | `[V, D]`, `[P, D]`, `[types, D]` | `table[id] += dy[t]` (accumulates) |
//! | `y` | `[T, D]` | `dy` |
//!
//! The tables and their gradients are f32; `y` and `dy` are f32, bf16 or f16. The sum of the three rows is
//! computed in f32 and rounded once. A padding row gets no gradient, as in PyTorch's
//! `nn.Embedding(padding_idx)`. The caller saves the ids; nothing else is saved.

use candle_core::{DType, Result, Tensor};

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use crate::computed::AnyIndices;
use crate::cuda::Gpu;
use crate::element::by_dtype;
use crate::gather_rows::check_ids;
use crate::indices::Indices;
use crate::tensor::{check_len, check_shape};

/// For each of `T` tokens, its row in each of the three tables.
#[derive(Debug, Clone, Copy)]
pub struct Ids<'a> {
    /// Rows of the word table, `[T]`.
    pub word: AnyIndices<'a>,
    /// Rows of the position table, `[T]`.
    pub position: Indices<'a>,
    /// Rows of the type table, `[T]`.
    pub token_type: Indices<'a>,
}

/// The three tables, or their gradients.
#[derive(Debug, Clone, Copy)]
pub struct Tables<'a> {
    /// The word table, `[V, D]`.
    pub word_vd: &'a Tensor,
    /// The position table, `[P, D]`; `None` if the model has none.
    pub position_pd: Option<&'a Tensor>,
    /// The token type table, `[types, D]`; `None` if the model has none.
    pub type_nd: Option<&'a Tensor>,
}

/// Padding rows, which get no gradient.
#[derive(Debug, Clone, Copy, Default)]
pub struct Padding {
    /// Padding row of the word table.
    pub word: Option<u32>,
    /// Padding row of the position table.
    pub position: Option<u32>,
}

/// Returns `y_td` in `dtype`; an id that is not a row of its table is an error that names both.
pub fn forward(ids: Ids<'_>, tables: &Tables<'_>, dtype: DType) -> Result<Tensor> {
    check(ids, tables)?;
    match Gpu::of(tables.word_vd)? {
        None => by_dtype!(of dtype, "embedding", T => cpu::forward::<T>(ids, tables)),
        Some(gpu) => cuda::forward(&gpu, ids, tables, dtype),
    }
}

/// Adds the gradients of the tables to `gradients`.
pub fn backward(dy_td: &Tensor, ids: Ids<'_>, gradients: &Tables<'_>, padding: Padding) -> Result<()> {
    check(ids, gradients)?;
    check_shape("embedding: dy", dy_td, &[ids.word.len(), gradients.word_vd.dim(1)?])?;
    match Gpu::of(dy_td)? {
        None => by_dtype!("embedding", dy_td, T => {
            // One table after the other, never nested: all three may be views of the same gradient buffer.
            for (_, ids, padding, table) in parts(ids, gradients, padding) {
                cpu::backward::<T>(dy_td, ids.host()?, padding, table)?;
            }
            Ok(())
        }),
        Some(gpu) => parts(ids, gradients, padding)
            .try_for_each(|(_, ids, padding, table)| cuda::backward(&gpu, dy_td, ids, padding, table)),
    }
}

/// Name, ids, padding row and table, for each table that is not `None`.
fn parts<'a>(
    ids: Ids<'a>,
    tables: &Tables<'a>,
    padding: Padding,
) -> impl Iterator<Item = (&'static str, AnyIndices<'a>, Option<u32>, &'a Tensor)> {
    let all = [
        ("token", ids.word, padding.word, Some(tables.word_vd)),
        ("position", ids.position.into(), padding.position, tables.position_pd),
        ("token type", ids.token_type.into(), None, tables.type_nd),
    ];
    all.into_iter().filter_map(|(name, ids, padding, table)| Some((name, ids, padding, table?)))
}

fn check(ids: Ids<'_>, tables: &Tables<'_>) -> Result<()> {
    let hidden = tables.word_vd.dims2()?.1;
    for (name, ids_t, _, table) in parts(ids, tables, Padding::default()) {
        let rows = table.dims2()?.0;
        check_shape(&format!("embedding: {name} table"), table, &[rows, hidden])?;
        check_len(&format!("embedding: {name} ids"), ids_t.len(), ids.word.len())?;
        check_ids(&format!("embedding: {name} id"), ids_t, rows)?;
    }
    Ok(())
}
