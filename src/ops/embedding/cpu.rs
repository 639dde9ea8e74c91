//! The sum of embeddings on the CPU.

use std::mem::MaybeUninit;

use candle_core::Result;
use candle_core::Tensor;

use crate::ops::element::Element;
use crate::ops::embedding::Ids;
use crate::ops::embedding::Tables;
use crate::ops::gather_rows::cpu::add_rows;
use crate::ops::parallel;
use crate::ops::simd::kernel;
use crate::ops::tensor::from_vec;
use crate::ops::tensor::unwritten;
use crate::ops::tensor::values;
use crate::ops::tensor::with_slice_mut;

pub(super) fn forward<T: Element>(ids: Ids<'_>, tables: &Tables<'_>) -> Result<Tensor> {
    let (tokens, hidden) = (ids.word.len(), tables.word_vd.dim(1)?);
    let (word, position) = (values::<f32>(tables.word_vd)?, values::<f32>(tables.position_pd)?);
    let kind = values::<f32>(tables.type_nd)?;
    let ids = [ids.word.host()?, ids.position.host(), ids.token_type.host()];
    let row_of = |id: u32| id as usize * hidden..(id as usize + 1) * hidden;
    let mut y = Vec::<T>::new();
    parallel::for_rows(unwritten(&mut y, tokens * hidden), hidden, |rows, y| {
        for (t, y) in rows.zip(y.chunks_exact_mut(hidden)) {
            let rows = [&word[row_of(ids[0][t])], &position[row_of(ids[1][t])], &kind[row_of(ids[2][t])]];
            add_three(rows, y);
        }
    });
    // SAFETY: `add_three` has written every row, which is as long as those of the tables.
    unsafe { y.set_len(tokens * hidden) };
    from_vec(y, (tokens, hidden))
}

kernel! {
    fn add_three<T>(rows: [&[f32]; 3], y: &mut [MaybeUninit<T>]) {
        for (((y, a), b), c) in y.iter_mut().zip(rows[0]).zip(rows[1]).zip(rows[2]) {
            y.write(T::narrow(a + b + c));
        }
    }
}

/// Adds the gradient of one table.
pub(super) fn backward<T: Element>(
    dy_td: &Tensor,
    ids: &[u32],
    padding: Option<u32>,
    dtable: &Tensor,
) -> Result<()> {
    let hidden = dy_td.dims2()?.1;
    let dy = values::<T>(dy_td)?;
    with_slice_mut(dtable, |dtable| add_rows(&dy, ids, padding, dtable, hidden))
}
