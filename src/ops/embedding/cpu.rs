//! The sum of embeddings on the CPU.

use candle_core::Result;
use candle_core::Tensor;

use crate::ops::embedding::Ids;
use crate::ops::embedding::Tables;
use crate::ops::gather_rows::cpu::add_rows;
use crate::ops::parallel;
use crate::ops::simd::kernel;
use crate::ops::tensor::from_vec;
use crate::ops::tensor::with_slice;
use crate::ops::tensor::with_slice_mut;
use crate::ops::tensor::with_slices;

pub(super) fn forward(ids: Ids<'_>, tables: &Tables<'_>) -> Result<Tensor> {
    let (tokens, hidden) = (ids.word.len(), tables.word_vd.dim(1)?);
    let mut y = vec![0.0; tokens * hidden];
    with_slices([tables.word_vd, tables.position_pd, tables.type_nd], |[word, position, kind]| {
        let row_of = |id: u32| id as usize * hidden..(id as usize + 1) * hidden;
        parallel::for_rows(&mut y, hidden, |rows, y| {
            for (t, y) in rows.zip(y.chunks_exact_mut(hidden)) {
                let rows = [&word[row_of(ids.word[t])], &position[row_of(ids.position[t])], &kind[row_of(ids.token_type[t])]];
                add_three(rows, y);
            }
        });
    })?;
    from_vec(y, (tokens, hidden))
}

kernel! {
    fn add_three(rows: [&[f32]; 3], y: &mut [f32]) {
        for (((y, a), b), c) in y.iter_mut().zip(rows[0]).zip(rows[1]).zip(rows[2]) {
            *y = a + b + c;
        }
    }
}

/// Adds the gradient of one table.
pub(super) fn backward(dy_td: &Tensor, ids: &[u32], padding: Option<u32>, dtable: &Tensor) -> Result<()> {
    let hidden = dy_td.dims2()?.1;
    with_slice(dy_td, |dy| with_slice_mut(dtable, |dtable| add_rows(dy, ids, padding, dtable, hidden)))?
}
