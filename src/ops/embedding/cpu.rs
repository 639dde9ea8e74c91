//! The sum of embeddings on the CPU.

use std::mem::MaybeUninit;

use candle_core::{Result, Tensor};

use crate::element::Element;
use crate::embedding::{Ids, Tables};
use crate::gather_rows::cpu::add_rows;
use crate::parallel;
use crate::simd::kernel;
use crate::tensor::{from_vec, unwritten, values, with_slice_mut};

pub(super) fn forward<T: Element>(ids: Ids<'_>, tables: &Tables<'_>) -> Result<Tensor> {
    let (tokens, hidden) = (ids.word.len(), tables.word_vd.dim(1)?);
    let word = values::<f32>(tables.word_vd)?;
    let [position, kind] =
        [tables.position_pd, tables.type_nd].map(|table| table.map(values::<f32>).transpose());
    let position = position?;
    let kind = kind?;
    let tables = [Some(&*word), position.as_deref(), kind.as_deref()];
    let ids = [ids.word.host()?, ids.position.host(), ids.token_type.host()];
    // An absent table counts as rows of zeros.
    let nothing = vec![0.0; hidden];
    let row = |table: usize, token: usize| match tables[table] {
        Some(rows) => &rows[ids[table][token] as usize * hidden..][..hidden],
        None => &nothing,
    };
    let mut y = Vec::<T>::new();
    parallel::for_rows(unwritten(&mut y, tokens * hidden), hidden, |rows, y| {
        for (token, y) in rows.zip(y.chunks_exact_mut(hidden)) {
            add_three([0, 1, 2].map(|table| row(table, token)), y);
        }
    });
    // SAFETY: `add_three` has written every row; rows are as long as those of the tables.
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

/// Adds the gradient of one table to `dtable`.
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
