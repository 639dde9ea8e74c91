//! The sum of embeddings by candle's `index_select`; the gradient of a padding row must be blanked by who
//! compares it.

use candle_core::Result;
use candle_core::Tensor;

use crate::ops::embedding::Ids;
use crate::ops::gather_rows;

/// The sum of the three rows of each token, in any float type.
pub fn forward(ids: Ids<'_>, word_vd: &Tensor, position_pd: &Tensor, type_nd: &Tensor) -> Result<Tensor> {
    let word = gather_rows::reference::forward(word_vd, ids.word.host()?)?;
    let position = gather_rows::reference::forward(position_pd, ids.position.host())?;
    word.add(&position)?.add(&gather_rows::reference::forward(type_nd, ids.token_type.host())?)
}
