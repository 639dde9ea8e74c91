//! The sum of embeddings by candle's `index_select`. It knows no padding: a test must set the gradient of a
//! padding row to zero before it compares.

use candle_core::{Result, Tensor};

use crate::embedding::{Ids, Tables};
use crate::gather_rows;

/// Returns, for each token, the sum of its rows in all tables, in any float type.
pub fn forward(ids: Ids<'_>, tables: &Tables<'_>) -> Result<Tensor> {
    let mut sum = gather_rows::reference::forward(tables.word_vd, ids.word.host()?)?;
    for (table, ids) in [(tables.position_pd, ids.position), (tables.type_nd, ids.token_type)] {
        if let Some(table) = table {
            sum = sum.add(&gather_rows::reference::forward(table, ids.host())?)?;
        }
    }
    Ok(sum)
}
