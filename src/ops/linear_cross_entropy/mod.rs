//! A linear map to many classes and the softmax cross-entropy of its logits in one op: the decoder of a
//! masked language model, whose logits are never all in memory.
//!
//! Forward: `z = x W^T + b` for `x` `[M, D]`, `W` `[V, D]`, `b` `[V]`; then the loss of
//! [`crate::cross_entropy`], whose sum, score and log-sum-exp are given. Backward, with `dz` as there:
//! `dx = dz W`, `dW += dz^T x`, `db += sum over m of dz`.
//!
//! Both are done at once, for as many rows at a time as [`PIECE_VALUES`] logits make (more on a GPU):
//! `scale`, the gradient of the step's loss by the loss sum, is known before. Logits are f32 whatever the
//! type of `x` and `W` (f32, bf16 or f16); `dz` is rounded to that type for the two products, which sum in
//! f32. Nothing is saved. While a row's logits are there, an id can be drawn from their softmax, as
//! [`crate::gumbel`] does it. Idea: Hsu et al., "Liger Kernel" (2024), section 3.2.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Result;
use candle_core::Tensor;
use candle_core::bail;

use crate::accumulator::Accumulator;
use crate::cross_entropy::Entropy;
use crate::cuda::Gpu;
use crate::element::by_dtype;
use crate::gather_rows::check_ids;
use crate::gumbel;
use crate::indices::Indices;
use crate::tensor::check_len;
use crate::tensor::check_shape;
use base::rng::Stream;

/// Most logits in memory at once on the CPU: 48 MiB in f32, and half of that or as much again for their
/// gradient.
const PIECE_VALUES: usize = 12 << 20;

/// The logits of so many rows that are in memory at once, with what lies between rows on a GPU.
pub fn logits_in_memory(rows: usize, classes: usize, on_gpu: bool) -> usize {
    if on_gpu {
        cuda::piece_rows(rows, classes, cuda::PIECE_VALUES) * cuda::row_stride(classes)
    } else {
        rows.min(cpu::piece_rows(classes)) * classes
    }
}

/// The map: `W` `[V, D]` in the type of `x`, `b` `[V]` in f32.
#[derive(Debug, Clone, Copy)]
pub struct Map<'a> {
    /// `W`.
    pub weight_vd: &'a Tensor,
    /// `b`.
    pub bias_v: &'a Tensor,
}

/// Where the gradients of the map accumulate, f32.
#[derive(Debug, Clone, Copy)]
pub struct MapGradients<'a> {
    /// Of `W`, `[V, D]`.
    pub dweight_vd: Accumulator<'a>,
    /// Of `b`, `[V]`.
    pub dbias_v: Accumulator<'a>,
}

impl MapGradients<'_> {
    /// The same, once something was added.
    fn continued(self) -> Self {
        Self { dweight_vd: self.dweight_vd.sum.into(), dbias_v: self.dbias_v.sum.into() }
    }

    /// Zeros where nothing was added: there was no row.
    fn begin(self) -> Result<()> {
        self.dweight_vd.begin()?;
        self.dbias_v.begin().map(|_| ())
    }
}

/// Ids that are drawn from the softmax of the rows: the stream and the key of each row, `[M]`.
#[derive(Debug, Clone, Copy)]
pub struct Draw<'a> {
    /// Where the noise comes from.
    pub stream: &'a Stream,
    /// Keys count with their low 40 bits.
    pub keys: Indices<'a, u64>,
}

/// Loss and score without gradients; an error names a label that is not below `V`. With `draw`, also an id
/// for each row, u32 `[M]`.
pub fn forward<'a>(
    x_md: &Tensor,
    map: Map<'_>,
    labels: impl Into<Indices<'a>>,
    draw: Option<Draw<'_>>,
) -> Result<(Entropy, Option<Tensor>)> {
    let labels = labels.into();
    check(x_md, map, labels, draw)?;
    match Gpu::of(x_md)? {
        None => {
            by_dtype!("linear cross entropy", x_md, T => cpu::forward::<T>(x_md, map, labels.host(), draw))
        }
        Some(gpu) => cuda::forward(&gpu, x_md, map, labels, draw, cuda::PIECE_VALUES),
    }
}

/// What [`forward_backward`] gives.
#[derive(Debug)]
pub struct Passed {
    /// Loss and score.
    pub entropy: Entropy,
    /// The gradient of `x`, `[M, D]`.
    pub dx_md: Tensor,
    /// The ids that were to be drawn, u32 `[M]`.
    pub drawn: Option<Tensor>,
}

/// As [`forward`], and `dx_md` for `scale` times the summed loss; adds to the gradients in `into`.
pub fn forward_backward<'a>(
    x_md: &Tensor,
    map: Map<'_>,
    labels: impl Into<Indices<'a>>,
    scale: f32,
    into: MapGradients<'_>,
    draw: Option<Draw<'_>>,
) -> Result<Passed> {
    let labels = labels.into();
    check(x_md, map, labels, draw)?;
    check_shape("linear cross entropy: weight gradient", into.dweight_vd.sum, map.weight_vd.dims())?;
    check_shape("linear cross entropy: bias gradient", into.dbias_v.sum, map.bias_v.dims())?;
    match Gpu::of(x_md)? {
        None => {
            by_dtype!("linear cross entropy", x_md, T => cpu::forward_backward::<T>(x_md, map, labels.host(), scale, into, draw))
        }
        Some(gpu) => cuda::forward_backward(&gpu, x_md, map, labels, scale, into, draw, cuda::PIECE_VALUES),
    }
}

fn check(x_md: &Tensor, map: Map<'_>, labels: Indices<'_>, draw: Option<Draw<'_>>) -> Result<()> {
    let ((rows, inputs), (classes, width)) = (x_md.dims2()?, map.weight_vd.dims2()?);
    if inputs != width || x_md.dtype() != map.weight_vd.dtype() {
        let (x, weight) = (x_md, map.weight_vd);
        bail!(
            "linear cross entropy: rows {:?} {:?} do not fit weight {:?} {:?}",
            x.shape(),
            x.dtype(),
            weight.shape(),
            weight.dtype()
        );
    }
    check_shape("linear cross entropy: bias", map.bias_v, &[classes])?;
    check_len("linear cross entropy: labels", labels.len(), rows)?;
    if let Some(draw) = draw {
        check_len("linear cross entropy: keys", draw.keys.len(), rows)?;
        gumbel::check_classes("linear cross entropy", classes)?;
    }
    check_ids("linear cross entropy: label", labels, classes)
}
