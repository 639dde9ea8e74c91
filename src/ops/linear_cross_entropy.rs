//! A linear map to many classes and the softmax cross-entropy of its logits, fused: the decoder of a masked
//! language model, whose logits are never all in memory.
//!
//! Forward: `z = x W^T + b` for `x` `[M, D]`, `W` `[V, D]`, `b` `[V]`; then the loss of
//! [`crate::cross_entropy`], with the same results: loss sum, number of correct predictions, and log-sum-exp.
//! Backward, with `dz` as there: `dx = dz W`, `dW += dz^T x`, `db += sum over m of dz`.
//!
//! Forward and backward run together, for some rows at a time, whose logits are at most [`PIECE_VALUES`]
//! values (more on a GPU). This is possible because `scale`, the gradient of the step's loss with respect to
//! the loss sum, is known in advance. Logits are f32 for every dtype of `x` and `W` (f32, bf16 or f16); `dz`
//! is rounded to that dtype for the two products, which accumulate in f32. Nothing is saved. While the logits
//! of a row are in memory, an id can be sampled from their softmax, as by [`crate::gumbel`]. Idea: Hsu et
//! al., "Liger Kernel" (2024), section 3.2.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{Result, Tensor, bail};

use crate::accumulator::Accumulator;
use crate::cross_entropy::Entropy;
use crate::cuda::Gpu;
use crate::element::by_dtype;
use crate::gather_rows::check_ids;
use crate::gumbel;
use crate::indices::Indices;
use crate::tensor::{check_len, check_shape};
use base::rng::Stream;

/// Largest number of logits in memory at once on the CPU: 48 MiB in f32, plus 24 MiB (bf16, f16) or 48 MiB
/// (f32) for their gradient.
const PIECE_VALUES: usize = 12 << 20;

/// Number of logits that are in memory at once for `rows` rows; on a GPU with the padding of rows.
pub fn logits_in_memory(rows: usize, classes: usize, on_gpu: bool) -> usize {
    if on_gpu {
        cuda::piece_rows(rows, classes, cuda::PIECE_VALUES) * cuda::row_stride(classes)
    } else {
        rows.min(cpu::piece_rows(classes)) * classes
    }
}

/// The parameters of the linear map.
#[derive(Debug, Clone, Copy)]
pub struct Map<'a> {
    /// The weight `W`, `[V, D]`, in the dtype of `x`.
    pub weight_vd: &'a Tensor,
    /// The bias `b`, `[V]`, f32.
    pub bias_v: &'a Tensor,
}

/// The gradients of the map, f32, which are added to.
#[derive(Debug, Clone, Copy)]
pub struct MapGradients<'a> {
    /// Gradient of `W`, `[V, D]`.
    pub dweight_vd: Accumulator<'a>,
    /// Gradient of `b`, `[V]`.
    pub dbias_v: Accumulator<'a>,
}

impl MapGradients<'_> {
    /// The same gradients after the first addition: from now on they are added to.
    fn continued(self) -> Self {
        Self { dweight_vd: self.dweight_vd.sum.into(), dbias_v: self.dbias_v.sum.into() }
    }

    /// Sets gradients to zero to which nothing was added, because there were no rows.
    fn begin(self) -> Result<()> {
        self.dweight_vd.begin()?;
        self.dbias_v.begin().map(|_| ())
    }
}

/// Arguments for sampling an id from the softmax of each row.
#[derive(Debug, Clone, Copy)]
pub struct Draw<'a> {
    /// The random stream of the noise.
    pub stream: &'a Stream,
    /// The key of each row, `[M]`; only the low 40 bits of a key are used.
    pub keys: Indices<'a, u64>,
}

/// Computes the loss and the number of correct predictions, without gradients. With `draw`, also samples an
/// id for each row, u32 `[M]`. A label that is not below `V` is an error that names it.
pub fn forward<'a>(
    x_md: &Tensor,
    map: Map<'_>,
    labels: impl Into<Indices<'a>>,
    draw: Option<Draw<'_>>,
) -> Result<(Entropy, Option<Tensor>)> {
    forward_compiled(x_md, map, labels.into(), draw)
}

fn forward_compiled(
    x_md: &Tensor,
    map: Map<'_>,
    labels: Indices<'_>,
    draw: Option<Draw<'_>>,
) -> Result<(Entropy, Option<Tensor>)> {
    check(x_md, map, labels, draw)?;
    match Gpu::of(x_md)? {
        None => {
            by_dtype!("linear cross entropy", x_md, T => cpu::forward::<T>(x_md, map, labels.host(), draw))
        }
        Some(gpu) => cuda::forward(&gpu, x_md, map, labels, draw, cuda::PIECE_VALUES),
    }
}

/// The result of [`forward_backward`].
#[derive(Debug)]
pub struct Passed {
    /// Loss, number of correct predictions, and log-sum-exp of each row.
    pub entropy: Entropy,
    /// The gradient of `x`, `[M, D]`.
    pub dx_md: Tensor,
    /// The sampled ids, u32 `[M]`; `None` if none were requested.
    pub drawn: Option<Tensor>,
}

/// Like [`forward`], and also computes `dx_md` for the loss `scale * loss_sum`, and adds to the gradients in
/// `into`.
pub fn forward_backward<'a>(
    x_md: &Tensor,
    map: Map<'_>,
    labels: impl Into<Indices<'a>>,
    scale: f32,
    into: MapGradients<'_>,
    draw: Option<Draw<'_>>,
) -> Result<Passed> {
    forward_backward_compiled(x_md, map, labels.into(), scale, into, draw)
}

fn forward_backward_compiled(
    x_md: &Tensor,
    map: Map<'_>,
    labels: Indices<'_>,
    scale: f32,
    into: MapGradients<'_>,
    draw: Option<Draw<'_>>,
) -> Result<Passed> {
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
    let (rows, inputs) = x_md.dims2()?;
    let (classes, width) = map.weight_vd.dims2()?;
    if inputs != width || x_md.dtype() != map.weight_vd.dtype() {
        bail!(
            "linear cross entropy: rows {:?} {:?} do not fit weight {:?} {:?}",
            x_md.shape(),
            x_md.dtype(),
            map.weight_vd.shape(),
            map.weight_vd.dtype()
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
