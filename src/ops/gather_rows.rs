//! Gathers rows of a matrix: the masked positions for the language-model head, or the first token of each row
//! for a classifier.
//!
//! Forward: `y[m] = x[positions[m]]`, with `x` `[T, D]` and `y` `[M, D]`. Only the positions are saved.
//! Backward: `dx[t] = sum over m with positions[m] = t of dy[m]`, which is zero for rows that were not
//! gathered. [`backward_onto`] adds this to an existing gradient of `x` instead. `x`, `y` and their gradients
//! are f32, bf16 or f16; sums are computed in f32 and rounded once.

pub(crate) mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{Result, Tensor, bail};

use crate::computed::AnyIndices;
use crate::cuda::Gpu;
use crate::element::by_dtype;
use crate::indices::Indices;
use crate::tensor::{check_len, check_one_dtype, check_shape};

/// Returns `y_md`, the rows of `x_td` at `positions`; a position of `T` or more is an error that names it.
pub fn forward<'a>(x_td: &Tensor, positions: impl Into<Indices<'a>>) -> Result<Tensor> {
    forward_compiled(x_td, positions.into())
}

fn forward_compiled(x_td: &Tensor, positions: Indices<'_>) -> Result<Tensor> {
    check_ids("gather rows: position", positions, x_td.dims2()?.0)?;
    match Gpu::of(x_td)? {
        None => by_dtype!("gather rows", x_td, T => cpu::forward::<T>(x_td, positions.host())),
        Some(gpu) => cuda::forward(&gpu, x_td, positions),
    }
}

/// Returns `dx_td`, which has `tokens` rows. The gradients of a row that was gathered several times are added
/// in the order of `positions`.
pub fn backward<'a>(dy_md: &Tensor, positions: impl Into<Indices<'a>>, tokens: usize) -> Result<Tensor> {
    backward_compiled(dy_md, positions.into(), tokens)
}

fn backward_compiled(dy_md: &Tensor, positions: Indices<'_>, tokens: usize) -> Result<Tensor> {
    check_ids("gather rows: position", positions, tokens)?;
    check_len("gather rows: positions", positions.len(), dy_md.dims2()?.0)?;
    match Gpu::of(dy_md)? {
        None => by_dtype!("gather rows", dy_md, T => cpu::backward::<T>(dy_md, positions.host(), tokens)),
        Some(gpu) => cuda::backward(&gpu, dy_md, positions, tokens),
    }
}

/// Adds the result of [`backward`] to `dx_td`, which must have the dtype of `dy_md`; only rows that were
/// gathered are touched.
pub fn backward_onto<'a>(dy_md: &Tensor, positions: impl Into<Indices<'a>>, dx_td: &Tensor) -> Result<()> {
    backward_onto_compiled(dy_md, positions.into(), dx_td)
}

fn backward_onto_compiled(dy_md: &Tensor, positions: Indices<'_>, dx_td: &Tensor) -> Result<()> {
    let (tokens, cols) = dx_td.dims2()?;
    check_ids("gather rows: position", positions, tokens)?;
    check_shape("gather rows: output gradient", dy_md, &[positions.len(), cols])?;
    check_one_dtype("gather rows", &[("the gradient", dx_td), ("the output gradient", dy_md)])?;
    match Gpu::of(dy_md)? {
        None => by_dtype!("gather rows", dy_md, T => cpu::backward_onto::<T>(dy_md, positions.host(), dx_td)),
        Some(gpu) => cuda::backward_onto(&gpu, dy_md, positions, dx_td),
    }
}

/// Returns an error that names the first of `ids` that is not below `size`.
pub(crate) fn check_ids<'a>(what: &str, ids: impl Into<AnyIndices<'a>>, size: usize) -> Result<()> {
    // Ids that only the GPU has are not checked, because the host would have to wait for them; the op that
    // computes them guarantees that they are valid.
    let Some(ids) = ids.into().known() else { return Ok(()) };
    let ids = ids.host();
    match ids.iter().position(|&id| id as usize >= size) {
        Some(at) => bail!("{what} {} (number {at} of {}) is not below {size}", ids[at], ids.len()),
        None => Ok(()),
    }
}
