//! The linear map `y = x W^T + b`.
//!
//! | value | shape | type | gradient |
//! |---|---|---|---|
//! | `x` | `[T, I]` | compute | `dx = dy W` |
//! | `W` | `[O, I]` | compute | `dW += dy^T x`, or `=` (see [`Accumulator`]) |
//! | `b` | `[O]` | f32, on a GPU also compute | `db += sum over rows of dy` (as `dW`) |
//! | `y` | `[T, O]` | compute | `dy` |
//!
//! The compute type is f32, bf16 or f16; sums are computed in f32 and rounded once. The caller saves `x` for
//! backward. Gradients of parameters are f32; that of a weight may have the compute type, and then that of
//! its bias may, too.

use candle_core::{DType, Result, Tensor, bail};

use crate::accumulator::Accumulator;
use crate::cuda::Gpu;
use crate::element::by_dtype;
use crate::tensor::check_shape;

mod batched;
mod cpu;
pub(crate) mod cuda;
pub mod reference;

/// One of several maps of an input.
#[derive(Debug, Clone, Copy)]
pub struct Map<'a> {
    /// The weight `W`, `[O, I]`.
    pub weight_oi: &'a Tensor,
    /// The bias `b`, `[O]`; optional.
    pub bias_o: Option<&'a Tensor>,
}

/// For one of several maps of an input: the gradient of its output, and the gradients of its parameters,
/// which are added to.
#[derive(Debug, Clone, Copy)]
pub struct MapGradients<'a> {
    /// Gradient of the output, `[T, O]`.
    pub dy_to: &'a Tensor,
    /// Gradient of the weight, `[O, I]`.
    pub dweight_oi: Accumulator<'a>,
    /// Gradient of the bias, `[O]`; `None` if there is no bias.
    pub dbias_o: Option<Accumulator<'a>>,
}

/// `y_to = x_ti W_oi^T + b_o`; `bias_o` is `None` if the next op adds the bias. A GPU rounds the bias to the
/// dtype of `y`, and also accepts a bias that has this dtype already.
pub fn forward(x_ti: &Tensor, weight_oi: &Tensor, bias_o: Option<&Tensor>) -> Result<Tensor> {
    check_map(x_ti, Map { weight_oi, bias_o })?;
    match Gpu::of(x_ti)? {
        None => by_dtype!("linear", x_ti, T => cpu::forward::<T>(x_ti, weight_oi, bias_o)),
        Some(gpu) => cuda::forward(&gpu, x_ti, weight_oi, bias_o),
    }
}

/// Like [`forward`], for several maps of one input, which a GPU computes in one product if possible.
pub fn forward_maps<const N: usize>(x_ti: &Tensor, maps: [Map<'_>; N]) -> Result<[Tensor; N]> {
    if let Some(gpu) = Gpu::of(x_ti)? {
        maps.iter().try_for_each(|map| check_map(x_ti, *map))?;
        if let Some(outputs) = batched::forward(&gpu, x_ti, maps)? {
            return Ok(outputs);
        }
    }
    let outputs = maps.iter().map(|map| forward(x_ti, map.weight_oi, map.bias_o));
    Ok(outputs.collect::<Result<Vec<Tensor>>>()?.try_into().expect("there is an output for each map"))
}

/// `dx_ti = dy_to W_oi`.
pub fn backward_input(dy_to: &Tensor, weight_oi: &Tensor) -> Result<Tensor> {
    check(dy_to, weight_oi, 0)?;
    match Gpu::of(dy_to)? {
        None => by_dtype!("linear", dy_to, T => cpu::backward_input::<T>(dy_to, weight_oi)),
        Some(gpu) => cuda::backward_input(&gpu, dy_to, weight_oi),
    }
}

/// `dx_ti += sum over the maps (dy_to, W_oi) of dy_to W_oi`, for the input of several maps. On the CPU this
/// is one sum that is rounded once; on a GPU each product is added to `dx_ti` and rounded to its dtype.
pub fn backward_inputs_accumulate(maps: &[(&Tensor, &Tensor)], dx_ti: &Tensor) -> Result<()> {
    for (dy_to, weight_oi) in maps {
        check(dy_to, weight_oi, 0)?;
        check_shape("linear: dx", dx_ti, &[dy_to.dim(0)?, weight_oi.dim(1)?])?;
        if dy_to.dtype() != dx_ti.dtype() {
            bail!("linear: dx is {:?}, dy is {:?}", dx_ti.dtype(), dy_to.dtype());
        }
    }
    match Gpu::of(dx_ti)? {
        None => by_dtype!("linear", dx_ti, T => cpu::backward_inputs_accumulate::<T>(maps, dx_ti)),
        Some(gpu) => cuda::backward_inputs_accumulate(&gpu, maps, dx_ti),
    }
}

/// `dW_oi += dy_to^T x_ti` and, unless `dbias_o` is `None`, `db_o += sum over rows of dy_to`. The gradients
/// are f32 or have the type of `dy_to`; that of the bias may only have this type if that of the weight has
/// it.
pub fn backward_parameters<'a>(
    dy_to: &Tensor,
    x_ti: &Tensor,
    dweight_oi: impl Into<Accumulator<'a>>,
    dbias_o: Option<Accumulator<'a>>,
) -> Result<()> {
    backward_parameters_compiled(dy_to, x_ti, dweight_oi.into(), dbias_o)
}

fn backward_parameters_compiled(
    dy_to: &Tensor,
    x_ti: &Tensor,
    dweight_oi: Accumulator<'_>,
    dbias_o: Option<Accumulator<'_>>,
) -> Result<()> {
    check_gradients(x_ti, MapGradients { dy_to, dweight_oi, dbias_o })?;
    match Gpu::of(dy_to)? {
        None => {
            by_dtype!("linear", dy_to, T => cpu::backward_parameters::<T>(dy_to, x_ti, dweight_oi, dbias_o))
        }
        Some(gpu) => cuda::backward_parameters(&gpu, dy_to, x_ti, dweight_oi, dbias_o),
    }
}

/// Like [`backward_parameters`], for several maps of one input, which a GPU computes in one product if
/// possible.
pub fn backward_parameters_of_maps<const N: usize>(x_ti: &Tensor, maps: [MapGradients<'_>; N]) -> Result<()> {
    if let Some(gpu) = Gpu::of(x_ti)? {
        maps.iter().try_for_each(|map| check_gradients(x_ti, *map))?;
        if batched::backward_parameters(&gpu, x_ti, maps)? {
            return Ok(());
        }
    }
    maps.iter().try_for_each(|map| backward_parameters(map.dy_to, x_ti, map.dweight_oi, map.dbias_o))
}

fn check_map(x_ti: &Tensor, Map { weight_oi, bias_o }: Map<'_>) -> Result<()> {
    check(x_ti, weight_oi, 1)?;
    let Some(bias) = bias_o else { return Ok(()) };
    check_shape("linear: bias", bias, &[weight_oi.dim(0)?])?;
    let gpu_takes = bias.dtype() == x_ti.dtype() && Gpu::of(x_ti)?.is_some();
    if bias.dtype() != DType::F32 && !gpu_takes {
        bail!("linear: the bias is {:?}, the input {:?}", bias.dtype(), x_ti.dtype());
    }
    Ok(())
}

fn check_gradients(x_ti: &Tensor, map: MapGradients<'_>) -> Result<()> {
    let (rows, outputs) = map.dy_to.dims2()?;
    let inputs = x_ti.dims2()?.1;
    check_shape("linear: x", x_ti, &[rows, inputs])?;
    let dweight = map.dweight_oi.sum;
    check_shape("linear: weight gradient", dweight, &[outputs, inputs])?;
    if dweight.dtype() != DType::F32 && dweight.dtype() != map.dy_to.dtype() {
        bail!("linear: the weight gradient is {:?}, dy is {:?}", dweight.dtype(), map.dy_to.dtype());
    }
    let Some(Accumulator { sum: dbias, .. }) = map.dbias_o else { return Ok(()) };
    if dbias.dtype() != DType::F32 && dbias.dtype() != dweight.dtype() {
        bail!("linear: the bias gradient is {:?}, that of the weight {:?}", dbias.dtype(), dweight.dtype());
    }
    check_shape("linear: bias gradient", dbias, &[outputs])
}

fn check(rows: &Tensor, weight: &Tensor, weight_dim: usize) -> Result<()> {
    if rows.rank() != 2 || weight.rank() != 2 || rows.dim(1)? != weight.dim(weight_dim)? {
        bail!("linear: rows {:?} do not fit weight {:?}", rows.shape(), weight.shape());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
