//! Muon on the CPU: one matrix after the other, each with all threads. Nearly all time is in products.

use candle_core::{Result, Tensor};
use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::{ParallelSlice, ParallelSliceMut};

use crate::element::{Element, by_dtype};
use crate::matmul::cpu::{Matrix, Output, product};
use crate::muon::{COEFFICIENTS, EPS, Settings};
use crate::parallel::BLOCK_VALUES;
use crate::simd::{kernel, sum_of_squares};
use crate::tensor::{values, with_slice_mut, with_values_mut};
use crate::update::cpu::{clipped, with_gradients};
use crate::update::{Buffers, Group, Groups, Hyper};

/// Rows of a symmetric product that are computed at a time; columns before them are mirrored.
const SYMMETRIC_ROWS: usize = 256;

/// Rows that are mirrored together: their values of a column are adjacent where they are read.
const MIRRORED_ROWS: usize = 16;

pub(super) fn update(
    buffers: Buffers<'_, 1>,
    groups: Groups<'_>,
    shapes: &[[usize; 2]],
    hyper: &Hyper,
    settings: &Settings,
) -> Result<()> {
    let Some(hyper) = clipped(&buffers, hyper)? else { return Ok(()) };
    match buffers.shadow {
        None => run::<f32>(buffers, groups, shapes, &hyper, settings),
        Some(shadow) => {
            by_dtype!("muon: shadow", shadow, T => run::<T>(buffers, groups, shapes, &hyper, settings))
        }
    }
}

fn run<T: Element>(
    buffers: Buffers<'_, 1>,
    groups: Groups<'_>,
    shapes: &[[usize; 2]],
    hyper: &Hyper,
    settings: &Settings,
) -> Result<()> {
    let [momentum] = buffers.state;
    let averaging = Averaging {
        multiplier: hyper.gradient_multiplier,
        rest: (1.0 - settings.momentum) as f32,
        // `u = g + share * (m - g)`.
        share: if settings.nesterov { settings.momentum as f32 } else { 1.0 },
    };
    let mut room = Room::<T>::new(shapes);
    for (index, (Group { range, weight_decay, lr_scale }, &shape)) in
        groups.list.iter().zip(shapes).enumerate()
    {
        let squares = with_gradients(&buffers, groups, |gradients| {
            let gradients = gradients.of_group(index, range.clone()).widened();
            with_slice_mut(momentum, |momentum| {
                room.average(&gradients, &mut momentum[range.clone()], &averaging)
            })
        })??;
        room.orthogonalise(shape, (1.0 / squares.sqrt().max(EPS)) as f32, settings.ns_steps);
        let change = Change {
            decay: (hyper.lr * f64::from(*weight_decay)) as f32 * lr_scale,
            step_size: (hyper.lr * settings.adjust_lr.ratio(shape)) as f32 * lr_scale,
        };
        let parameters = buffers.parameters.narrow(0, range.start, range.len())?;
        apply(&parameters, &room.x[..range.len()], &change)?;
        if let Some(shadow) = buffers.shadow {
            let shadow = shadow.narrow(0, range.start, range.len())?;
            let parameters = values::<f32>(&parameters)?;
            with_values_mut::<T, _>(&shadow, |shadow| round_all(&parameters, shadow, 1.0))?;
        }
    }
    Ok(())
}

/// Constants of the momentum and of the direction made from it.
struct Averaging {
    multiplier: f32,
    rest: f32,
    share: f32,
}

/// Constants of the change of the parameters.
struct Change {
    decay: f32,
    step_size: f32,
}

/// Memory for the largest matrix.
struct Room<T> {
    /// Directions `u`, and the f32 sums of the product that gives the next `x`, `[R, C]`.
    sums: Vec<f32>,
    /// `x`, `[R, C]`.
    x: Vec<T>,
    /// `A`, then the polynomial of it, `[M, M]` with `M = min(R, C)`.
    gram: Vec<T>,
    /// `A^2`, `[M, M]`.
    square: Vec<f32>,
}

impl<T: Element> Room<T> {
    fn new(shapes: &[[usize; 2]]) -> Self {
        let largest = shapes.iter().map(|[rows, cols]| rows * cols).max().unwrap_or(0);
        let smaller = shapes.iter().map(|[rows, cols]| *rows.min(cols)).max().unwrap_or(0);
        Self {
            sums: vec![0.0; largest],
            x: vec![T::narrow(0.0); largest],
            gram: vec![T::narrow(0.0); smaller * smaller],
            square: vec![0.0; smaller * smaller],
        }
    }

    /// Updates the momentum, writes the directions into `sums`, and returns the sum of their squares.
    fn average(&mut self, gradients: &[f32], momentum: &mut [f32], averaging: &Averaging) -> f64 {
        let blocks = gradients.par_chunks(BLOCK_VALUES).zip(momentum.par_chunks_mut(BLOCK_VALUES));
        let blocks = blocks.zip(self.sums.par_chunks_mut(BLOCK_VALUES));
        let squares = blocks.map(|((g, m), u)| average(g, m, &mut u[..g.len()], averaging));
        squares.collect::<Vec<f64>>().into_iter().sum()
    }

    /// Replaces the directions in `sums`, times `scale`, by an approximate orthogonal matrix in `x`.
    fn orthogonalise(&mut self, [rows, cols]: [usize; 2], scale: f32, steps: usize) {
        let smaller = rows.min(cols);
        let sums = &mut self.sums[..rows * cols];
        let x = &mut self.x[..rows * cols];
        let gram = &mut self.gram[..smaller * smaller];
        let square = &mut self.square[..smaller * smaller];
        round_all(sums, x, scale);
        for _ in 0..steps {
            let whole = Matrix::rows(x, cols);
            let is_wide = rows <= cols;
            let flat = if is_wide { whole } else { whole.transposed() };
            // SAFETY: `flat` is `[smaller, larger]`, and the output `[smaller, smaller]`.
            unsafe { symmetric_product(gram, flat, smaller, rows.max(cols)) };
            // SAFETY: both are `[smaller, smaller]`.
            unsafe { symmetric_product(square, Matrix::rows(gram, smaller), smaller, smaller) };
            let blocks = gram.par_chunks_mut(BLOCK_VALUES).zip(square.par_chunks(BLOCK_VALUES));
            blocks.for_each(|(gram, square)| polynomial(gram, square));
            let blocks = sums.par_chunks_mut(BLOCK_VALUES).zip(x.par_chunks(BLOCK_VALUES));
            blocks.for_each(|(sums, x)| scaled(x, sums));
            let factor = Matrix::rows(gram, smaller);
            let out = Output::rows(sums.as_mut_ptr(), cols).accumulating();
            // SAFETY: `x` and the output are `[rows, cols]`, the factor has the size of the side that it
            // multiplies.
            unsafe {
                if is_wide {
                    product((rows, cols, rows), out, factor, whole, 1.0, true);
                } else {
                    product((rows, cols, cols), out, whole, factor, 1.0, true);
                }
            }
            round_all(sums, x, 1.0);
        }
    }
}

/// Computes `out = a a^T`, of which it computes little more than a half.
///
/// # Safety
/// `a` must be `[size, depth]`, and `out` `[size, size]`.
unsafe fn symmetric_product<T: Element, O: Element>(out: &mut [O], a: Matrix<T>, size: usize, depth: usize) {
    for start in (0..size).step_by(SYMMETRIC_ROWS) {
        let rows = SYMMETRIC_ROWS.min(size - start);
        let (above, below) = out.split_at_mut(start * size);
        // SAFETY: the rows from `start` on are within `a`, and the block of the output is within `below`.
        unsafe {
            let rest = a.from(start, 0);
            let block = Output::rows(below.as_mut_ptr().add(start), size);
            product((rows, size - start, depth), block, rest, rest.transposed(), 1.0, true);
        }
        below[..rows * size].par_chunks_mut(MIRRORED_ROWS * size).enumerate().for_each(|(chunk, rows)| {
            let first = start + chunk * MIRRORED_ROWS;
            for (col, column) in above.chunks(size).enumerate() {
                for (row, values) in rows.chunks_mut(size).enumerate() {
                    values[col] = column[first + row];
                }
            }
        });
    }
}

/// Writes `from` times `scale` into `to`, rounded.
fn round_all<T: Element>(from: &[f32], to: &mut [T], scale: f32) {
    let blocks = from.par_chunks(BLOCK_VALUES).zip(to.par_chunks_mut(BLOCK_VALUES));
    blocks.for_each(|(from, to)| rounded(from, to, scale));
}

fn apply<T: Element>(parameters: &Tensor, directions: &[T], change: &Change) -> Result<()> {
    with_slice_mut(parameters, |parameters| {
        let blocks = parameters.par_chunks_mut(BLOCK_VALUES).zip(directions.par_chunks(BLOCK_VALUES));
        blocks.for_each(|(parameters, directions)| changed(parameters, directions, change));
    })
}

kernel! {
    fn average(g: &[f32], m: &mut [f32], u: &mut [f32], averaging: &Averaging) -> f64 {
        for ((g, m), u) in g.iter().zip(m).zip(u.iter_mut()) {
            let g = *g * averaging.multiplier;
            *m = averaging.rest.mul_add(g - *m, *m);
            *u = averaging.share.mul_add(*m - g, g);
        }
        sum_of_squares(u)
    }

    fn rounded<T>(from: &[f32], to: &mut [T], scale: f32) {
        for (from, to) in from.iter().zip(to) {
            *to = T::narrow(*from * scale);
        }
    }

    fn scaled<T>(from: &[T], to: &mut [f32]) {
        for (from, to) in from.iter().zip(to) {
            *to = COEFFICIENTS[0] * from.widen();
        }
    }

    fn polynomial<T>(gram: &mut [T], square: &[f32]) {
        for (gram, square) in gram.iter_mut().zip(square) {
            *gram = T::narrow(COEFFICIENTS[1].mul_add(gram.widen(), COEFFICIENTS[2] * square));
        }
    }

    fn changed<T>(p: &mut [f32], x: &[T], change: &Change) {
        for (p, x) in p.iter_mut().zip(x) {
            *p -= change.decay.mul_add(*p, change.step_size * x.widen());
        }
    }
}
