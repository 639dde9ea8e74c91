//! Linear on the CPU, f32: the `gemm` crate, 174-210 of 234 GFLOP/s on two Zen-4 cores.

use candle_core::Result;
use candle_core::Tensor;
use candle_core::bail;

use crate::ops::matmul::cpu::Matrix;
use crate::ops::matmul::cpu::Output;
use crate::ops::matmul::cpu::product;
use crate::ops::parallel::column_sums_into;
use crate::ops::tensor::check_shape;
use crate::ops::tensor::from_vec;
use crate::ops::tensor::with_slice;
use crate::ops::tensor::with_slice_mut;
use crate::ops::tensor::with_slices;

pub(super) fn forward(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let ((rows, inputs), outputs) = (x.dims2()?, weight.dim(0)?);
    let mut y = Vec::with_capacity(rows * outputs);
    match bias {
        // The product adds to the bias that already stands in the output: no pass of its own.
        Some(bias) if bias.elem_count() != outputs => {
            bail!("linear: bias {:?} does not fit weight {:?}", bias.shape(), weight.shape())
        }
        Some(bias) => with_slice(bias, |bias| (0..rows).for_each(|_| y.extend_from_slice(bias)))?,
        None => {}
    }
    with_slices([x, weight], |[x, weight]| {
        let out = Output { data: y.as_mut_ptr(), row_stride: outputs, accumulate: bias.is_some() };
        // SAFETY: `x`, `weight` and `y` are whole matrices of the shapes checked by the caller.
        unsafe {
            product((rows, outputs, inputs), out, Matrix::rows(x, inputs), Matrix::rows(weight, inputs).transposed(), 1.0, true);
        }
    })?;
    // SAFETY: the capacity was asked for above, and the product or the bias wrote every element.
    unsafe { y.set_len(rows * outputs) };
    from_vec(y, (rows, outputs))
}

pub(super) fn backward_input(dy: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let (rows, inputs) = (dy.dim(0)?, weight.dim(1)?);
    let mut dx = Vec::with_capacity(rows * inputs);
    // SAFETY: the capacity is that of the product, and the product writes every element.
    unsafe {
        input_product(dy, weight, dx.as_mut_ptr(), false)?;
        dx.set_len(rows * inputs);
    }
    from_vec(dx, (rows, inputs))
}

pub(super) fn backward_input_accumulate(dy: &Tensor, weight: &Tensor, dx: &Tensor) -> Result<()> {
    if dx.dims2()? != (dy.dim(0)?, weight.dim(1)?) {
        bail!("linear: dx {:?} does not fit dy {:?} and weight {:?}", dx.shape(), dy.shape(), weight.shape());
    }
    // SAFETY: `dx` has the shape of the product.
    with_slice_mut(dx, |dx| unsafe { input_product(dy, weight, dx.as_mut_ptr(), true) })?
}

/// Writes `dy weight` to `dx` or adds it there.
///
/// # Safety
/// `dx` must have room for the product, and hold values when it accumulates.
unsafe fn input_product(dy: &Tensor, weight: &Tensor, dx: *mut f32, accumulate: bool) -> Result<()> {
    let ((rows, outputs), inputs) = (dy.dims2()?, weight.dim(1)?);
    with_slices([dy, weight], |[dy, weight]| {
        let out = Output { data: dx, row_stride: inputs, accumulate };
        // SAFETY: `dy` and `weight` are whole matrices of the shapes checked by the caller, who promises `dx`.
        unsafe { product((rows, inputs, outputs), out, Matrix::rows(dy, outputs), Matrix::rows(weight, inputs), 1.0, true) }
    })
}

pub(super) fn backward_parameters(dy: &Tensor, x: &Tensor, dweight: &Tensor, dbias: Option<&Tensor>) -> Result<()> {
    let ((rows, outputs), inputs) = (dy.dims2()?, x.dim(1)?);
    if x.dim(0)? != rows {
        bail!("linear: dy {:?} and x {:?} differ in rows", dy.shape(), x.shape());
    }
    with_slice_mut(dweight, |dweight| {
        with_slices([dy, x], |[dy, x]| {
            let out = Output { data: dweight.as_mut_ptr(), row_stride: inputs, accumulate: true };
            // SAFETY: `dy`, `x` and `dweight` are whole matrices of the shapes checked here and by the caller.
            unsafe { product((outputs, inputs, rows), out, Matrix::rows(dy, outputs).transposed(), Matrix::rows(x, inputs), 1.0, true) }
        })
    })??;
    let Some(dbias) = dbias else { return Ok(()) };
    check_shape("linear: bias gradient", dbias, &[outputs])?;
    with_slice(dy, |dy| with_slice_mut(dbias, |dbias| column_sums_into(dy, dbias)))?
}
