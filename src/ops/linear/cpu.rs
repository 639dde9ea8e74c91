//! Linear maps on the CPU: three products, and the column sums of the bias gradient.

use candle_core::{DType, Result, Tensor};

use crate::accumulator::Accumulator;
use crate::element::Element;
use crate::matmul::cpu::{Matrix, Output, Term, product, sum_of_products};
use crate::parallel::column_sums_into;
use crate::tensor::{from_vec, unwritten, values, with_slice_mut, with_values_mut};

pub(super) fn forward<T: Element>(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let (rows, inputs) = x.dims2()?;
    let outputs = weight.dim(0)?;
    let bias = bias.map(values::<f32>).transpose()?;
    let (x, weight) = (values::<T>(x)?, values::<T>(weight)?);
    let mut y = Vec::<T>::new();
    let out = Output::unwritten(unwritten(&mut y, rows * outputs), outputs);
    // SAFETY: `x`, `weight` and `y` are whole matrices of the shapes checked by the caller, and the product
    // writes all of `y`.
    unsafe {
        product(
            (rows, outputs, inputs),
            Output { bias: bias.as_deref(), ..out },
            Matrix::rows(&x, inputs),
            Matrix::rows(&weight, inputs).transposed(),
            1.0,
            true,
        );
        y.set_len(rows * outputs);
    }
    from_vec(y, (rows, outputs))
}

pub(super) fn backward_input<T: Element>(dy: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let (rows, outputs) = dy.dims2()?;
    let inputs = weight.dim(1)?;
    let (dy, weight) = (values::<T>(dy)?, values::<T>(weight)?);
    let mut dx = Vec::<T>::new();
    let out = Output::unwritten(unwritten(&mut dx, rows * inputs), inputs);
    // SAFETY: `dy`, `weight` and `dx` are whole matrices of the shapes checked by the caller, and the product
    // writes all of `dx`.
    unsafe {
        product(
            (rows, inputs, outputs),
            out,
            Matrix::rows(&dy, outputs),
            Matrix::rows(&weight, inputs),
            1.0,
            true,
        );
        dx.set_len(rows * inputs);
    }
    from_vec(dx, (rows, inputs))
}

pub(super) fn backward_inputs_accumulate<T: Element>(maps: &[(&Tensor, &Tensor)], dx: &Tensor) -> Result<()> {
    let (rows, inputs) = dx.dims2()?;
    let mut operands = Vec::with_capacity(maps.len());
    for (dy, weight) in maps {
        operands.push((values::<T>(dy)?, values::<T>(weight)?, dy.dim(1)?));
    }
    let terms: Vec<Term<T>> = operands
        .iter()
        .map(|(dy, weight, outputs)| Term {
            a: rows_of(dy, *outputs),
            b: rows_of(weight, inputs),
            depth: *outputs,
        })
        .collect();
    with_values_mut::<T, _>(dx, |dx| {
        let out = Output::rows(dx.as_mut_ptr(), inputs).accumulating();
        // SAFETY: every `dy`, every `weight` and `dx` are whole matrices of the shapes checked by the caller.
        unsafe { sum_of_products((rows, inputs), out, &terms, 1.0, true) }
    })
}

fn rows_of<T: Element>(values: &impl std::ops::Deref<Target = [T]>, cols: usize) -> Matrix<T> {
    Matrix::rows(values, cols)
}

pub(super) fn backward_parameters<T: Element>(
    dy: &Tensor,
    x: &Tensor,
    dweight: Accumulator<'_>,
    dbias: Option<Accumulator<'_>>,
) -> Result<()> {
    if dweight.sum.dtype() == DType::F32 {
        weight_gradient::<T, f32>(dy, x, dweight)?;
    } else {
        weight_gradient::<T, T>(dy, x, dweight)?;
    }
    let Some(dbias) = dbias else { return Ok(()) };
    let dy = values::<T>(dy)?;
    if dbias.sum.dtype() == DType::F32 {
        return with_slice_mut(dbias.begin()?, |dbias| column_sums_into(&dy, dbias));
    }
    let mut sums = vec![0.0; dbias.sum.elem_count()];
    column_sums_into(&dy, &mut sums);
    with_values_mut::<T, _>(dbias.sum, |values| {
        for (value, sum) in values.iter_mut().zip(sums) {
            *value = T::narrow(if dbias.begun { value.widen() + sum } else { sum });
        }
    })
}

/// Computes the gradient of a weight in `O`, which is f32 or the type of the operands.
fn weight_gradient<T: Element, O: Element>(dy: &Tensor, x: &Tensor, dweight: Accumulator<'_>) -> Result<()> {
    let (rows, outputs) = dy.dims2()?;
    let inputs = x.dim(1)?;
    let (dy, x) = (values::<T>(dy)?, values::<T>(x)?);
    with_values_mut::<O, _>(dweight.sum, |values| {
        let out = Output { accumulate: dweight.begun, ..Output::rows(values.as_mut_ptr(), inputs) };
        // SAFETY: `dy`, `x` and the gradient are whole matrices of the shapes checked by the caller.
        unsafe {
            product(
                (outputs, inputs, rows),
                out,
                Matrix::rows(&dy, outputs).transposed(),
                Matrix::rows(&x, inputs),
                1.0,
                true,
            );
        }
    })
}
