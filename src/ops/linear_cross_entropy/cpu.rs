//! The op on the CPU, for some rows ("a piece") at a time: a product for the logits, a pass over the rows of
//! logits, and two products with their gradient.

use std::ops::Range;

use candle_core::{Result, Tensor};

use super::{Draw, Map, MapGradients, PIECE_VALUES, Passed};
use crate::cross_entropy::Entropy;
use crate::cross_entropy::cpu::{Row, chunk_room, entropy, forward_row, gradient_row};
use crate::element::Element;
use crate::matmul::cpu::{Matrix, Output, product};
use crate::tensor::{from_vec, unwritten, values, with_slice_mut};
use crate::{gumbel, parallel};

/// Largest number of rows of a piece, whose logits are in memory at once.
pub(super) fn piece_rows(classes: usize) -> usize {
    (PIECE_VALUES / classes.max(1)).max(1)
}

/// Splits the rows into pieces; the split depends only on shapes.
fn pieces(rows: usize, classes: usize) -> impl Iterator<Item = Range<usize>> {
    let size = piece_rows(classes);
    (0..rows).step_by(size).map(move |first| first..rows.min(first + size))
}

/// Computes the logits of some rows of `x`, f32.
fn logits<T: Element>(x: &[T], weight: &[T], bias: &[f32]) -> Vec<f32> {
    let classes = bias.len();
    let inputs = weight.len() / classes.max(1);
    let rows = x.len() / inputs.max(1);
    let mut logits = Vec::new();
    let out = Output::unwritten(unwritten(&mut logits, rows * classes), classes);
    // SAFETY: `x`, `weight` and `logits` are whole matrices of these shapes, and the product writes all
    // logits.
    unsafe {
        product(
            (rows, classes, inputs),
            Output { bias: Some(bias), ..out },
            Matrix::rows(x, inputs),
            Matrix::rows(weight, inputs).transposed(),
            1.0,
            true,
        );
        logits.set_len(rows * classes);
    }
    logits
}

/// The ids drawn so far, those of the rows before the current piece.
struct Drawn<'a> {
    draw: Option<Draw<'a>>,
    ids: Vec<u32>,
}

impl<'a> Drawn<'a> {
    fn new(draw: Option<Draw<'a>>, rows: usize) -> Self {
        Self { draw, ids: Vec::with_capacity(draw.map_or(0, |_| rows)) }
    }

    /// Draws the ids of the rows of a piece.
    fn draw_piece(&mut self, piece: &Range<usize>, logits: &[f32], classes: usize) {
        if let Some(Draw { stream, keys }) = self.draw {
            self.ids.extend(gumbel::cpu::sample_rows(logits, classes, stream, &keys.host()[piece.clone()]));
        }
    }

    fn tensor(self) -> Result<Option<Tensor>> {
        let rows = self.ids.len();
        self.draw.map(|_| from_vec(self.ids, rows)).transpose()
    }
}

pub(super) fn forward<T: Element>(
    x_md: &Tensor,
    map: Map<'_>,
    labels: &[u32],
    draw: Option<Draw<'_>>,
) -> Result<(Entropy, Option<Tensor>)> {
    let (rows, inputs) = x_md.dims2()?;
    let classes = map.bias_v.elem_count();
    let (x, weight, bias) = (values::<T>(x_md)?, values::<T>(map.weight_vd)?, values::<f32>(map.bias_v)?);
    let mut found = Vec::<Row>::with_capacity(rows);
    let mut drawn = Drawn::new(draw, rows);
    for piece in pieces(rows, classes) {
        let mut logits = logits(&x[piece.start * inputs..piece.end * inputs], &weight, &bias);
        drawn.draw_piece(&piece, &logits, classes);
        let labels = &labels[piece];
        found.extend(each_row(&mut logits, classes, |row, logits, room| {
            forward_row(logits, labels[row] as usize, room)
        }));
    }
    Ok((entropy(&found)?, drawn.tensor()?))
}

/// Calls `f(index, row, buffer)` for each row of `matrix` in parallel; returns the results in order.
fn each_row<T: Send>(
    matrix: &mut [T],
    cols: usize,
    f: impl Fn(usize, &mut [T], &mut [f32]) -> Row + Sync,
) -> impl Iterator<Item = Row> {
    let blocks = parallel::map_rows(matrix, cols, |rows, values| -> Vec<Row> {
        let mut room = chunk_room(cols);
        rows.zip(values.chunks_exact_mut(cols)).map(|(row, values)| f(row, values, &mut room)).collect()
    });
    blocks.into_iter().flatten()
}

pub(super) fn forward_backward<T: Element>(
    x_md: &Tensor,
    map: Map<'_>,
    labels: &[u32],
    scale: f32,
    mut into: MapGradients<'_>,
    draw: Option<Draw<'_>>,
) -> Result<Passed> {
    let (rows, inputs) = x_md.dims2()?;
    let classes = map.bias_v.elem_count();
    let (x, weight) = (values::<T>(x_md)?, values::<T>(map.weight_vd)?);
    let mut found = Vec::<Row>::with_capacity(rows);
    let mut drawn = Drawn::new(draw, rows);
    let mut dx = Vec::<T>::new();
    let out = unwritten(&mut dx, rows * inputs);
    for piece in pieces(rows, classes) {
        let at = piece.start * inputs..piece.end * inputs;
        let count = piece.len();
        let x = &x[at.clone()];
        let labels = &labels[piece.clone()];
        let out = &mut out[at];
        let mut dz = Vec::<T>::new();
        {
            let logits = logits(x, &weight, &values::<f32>(map.bias_v)?);
            drawn.draw_piece(&piece, &logits, classes);
            found.extend(each_row(unwritten(&mut dz, count * classes), classes, |row, dz, room| {
                let logits = &logits[row * classes..(row + 1) * classes];
                let label = labels[row] as usize;
                let found = forward_row(logits, label, room);
                gradient_row(logits, label, found.log_sum_exp, scale, dz);
                found
            }));
        }
        // SAFETY: `gradient_row` has written every row.
        unsafe { dz.set_len(count * classes) };
        let gradient = Matrix::rows(&dz, classes);
        // SAFETY: `dz`, `weight` and this part of `dx` are whole matrices of these shapes.
        unsafe {
            let out = Output::unwritten(out, inputs);
            product((count, inputs, classes), out, gradient, Matrix::rows(&weight, inputs), 1.0, true);
        }
        with_slice_mut(into.dweight_vd.sum, |dweight| {
            let out =
                Output { accumulate: into.dweight_vd.begun, ..Output::rows(dweight.as_mut_ptr(), inputs) };
            // SAFETY: `dz`, this part of `x` and `dweight` are whole matrices of these shapes.
            unsafe {
                product(
                    (classes, inputs, count),
                    out,
                    gradient.transposed(),
                    Matrix::rows(x, inputs),
                    1.0,
                    true,
                );
            }
        })?;
        with_slice_mut(into.dbias_v.begin()?, |dbias| parallel::column_sums_into(&dz, dbias))?;
        into = into.continued();
    }
    // SAFETY: the pieces cover all rows, and a product has written the rows of each piece.
    unsafe { dx.set_len(rows * inputs) };
    into.begin()?;
    Ok(Passed { entropy: entropy(&found)?, dx_md: from_vec(dx, (rows, inputs))?, drawn: drawn.tensor()? })
}
