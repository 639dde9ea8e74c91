//! The sum of embeddings by candle's `index_select`; the gradient of a padding row must be blanked by who
//! compares it.

use candle_core::Result;
use candle_core::Tensor;

use crate::embedding::Ids;
use crate::embedding::Tables;
use crate::gather_rows;

/// The sum of the rows of each token in all tables, in any float type.
pub fn forward(ids: Ids<'_>, tables: &Tables<'_>) -> Result<Tensor> {
    let mut sum = gather_rows::reference::forward(tables.word_vd, ids.word.host()?)?;
    for (table, ids) in [(tables.position_pd, ids.position), (tables.type_nd, ids.token_type)] {
        if let Some(table) = table {
            sum = sum.add(&gather_rows::reference::forward(table, ids.host())?)?;
        }
    }
    Ok(sum)
}
