//! Picks rows of a matrix: the masked positions for the language-model head, the first token of each row for
//! a classifier.
//!
//! Forward: `y[m] = x[positions[m]]`, `x` `[T, D]`, `y` `[M, D]`. Nothing is saved but the positions.
//! Backward: `dx[t] = sum over m with positions[m] = t of dy[m]`, zero for rows that were not picked; or the
//! same added to a gradient of `x` that is there.
//! `x`, `y` and their gradients are f32, bf16 or f16; what is added up is added in f32 and rounded once.

pub(crate) mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Result;
use candle_core::Tensor;
use candle_core::bail;

use crate::computed::AnyIndices;
use crate::cuda::Gpu;
use crate::element::by_dtype;
use crate::indices::Indices;
use crate::tensor::check_len;
use crate::tensor::check_one_dtype;
use crate::tensor::check_shape;

/// `y_md`, the rows of `x_td` at `positions`; an error names a position outside.
pub fn forward<'a>(x_td: &Tensor, positions: impl Into<Indices<'a>>) -> Result<Tensor> {
    let positions = positions.into();
    check_ids("gather rows: position", positions, x_td.dims2()?.0)?;
    match Gpu::of(x_td)? {
        None => by_dtype!("gather rows", x_td, T => cpu::forward::<T>(x_td, positions.host())),
        Some(gpu) => cuda::forward(&gpu, x_td, positions),
    }
}

/// `dx_td` with `tokens` rows from `dy_md`; rows picked several times add up in the order of `positions`.
pub fn backward<'a>(dy_md: &Tensor, positions: impl Into<Indices<'a>>, tokens: usize) -> Result<Tensor> {
    let positions = positions.into();
    check_ids("gather rows: position", positions, tokens)?;
    check_len("gather rows: positions", positions.len(), dy_md.dims2()?.0)?;
    match Gpu::of(dy_md)? {
        None => by_dtype!("gather rows", dy_md, T => cpu::backward::<T>(dy_md, positions.host(), tokens)),
        Some(gpu) => cuda::backward(&gpu, dy_md, positions, tokens),
    }
}

/// Adds what [`backward`] gives to `dx_td`, of the type of `dy_md`; only rows that were picked are touched.
pub fn backward_onto<'a>(dy_md: &Tensor, positions: impl Into<Indices<'a>>, dx_td: &Tensor) -> Result<()> {
    let positions = positions.into();
    let (tokens, cols) = dx_td.dims2()?;
    check_ids("gather rows: position", positions, tokens)?;
    check_shape("gather rows: output gradient", dy_md, &[positions.len(), cols])?;
    check_one_dtype("gather rows", &[("the gradient", dx_td), ("the output gradient", dy_md)])?;
    match Gpu::of(dy_md)? {
        None => by_dtype!("gather rows", dy_md, T => cpu::backward_onto::<T>(dy_md, positions.host(), dx_td)),
        Some(gpu) => cuda::backward_onto(&gpu, dy_md, positions, dx_td),
    }
}

/// An error that names the first of `ids` that is not below `size`.
pub(crate) fn check_ids<'a>(what: &str, ids: impl Into<AnyIndices<'a>>, size: usize) -> Result<()> {
    // What an op has computed on the GPU is what its contract says: to see it, the host would have to wait.
    let Some(ids) = ids.into().known() else { return Ok(()) };
    let ids = ids.host();
    match ids.iter().position(|&id| id as usize >= size) {
        Some(at) => bail!("{what} {} (number {at} of {}) is not below {size}", ids[at], ids.len()),
        None => Ok(()),
    }
}
