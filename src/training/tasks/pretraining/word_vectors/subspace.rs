//! The dominant singular vectors of a sparse symmetric matrix, by subspace iteration (Halko, Martinsson and
//! Tropp 2011, algorithm 4.4): a random basis is repeatedly multiplied and orthonormalised.

use anyhow::Result;
use candle_core::{Device, Tensor};
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use crate::tasks::pretraining::word_vectors::counts::Associations;
use base::rng::Stream;
use ops::matmul::sparse::multiply;

/// Number of multiplications; each reduces the component of the basis outside the dominant subspace.
pub(super) const ROUNDS: u64 = 8;

/// Returns an orthonormal basis `[V, dimensions]`, row-major, of the dominant subspace; `None` if the matrix
/// has fewer dimensions. Calls `after` after each of [`ROUNDS`] rounds; an error of it ends the search.
pub(super) fn dominant(
    matrix: &Associations,
    dimensions: usize,
    stream: Stream,
    after: impl Fn() -> Result<()>,
) -> Result<Option<Vec<f32>>> {
    let draws = (0..matrix.len() * dimensions).into_par_iter();
    let mut basis: Vec<f32> = draws.map(|index| stream.normal(index as u64) as f32).collect();
    for _ in 0..ROUNDS {
        let product = multiply(matrix.rows(), &basis, dimensions);
        let mut columns = Tensor::from_vec(product, (matrix.len(), dimensions), &Device::Cpu)?;
        // The second time removes the rounding errors of the first (CholeskyQR2, Yamamoto et al. 2015).
        for _ in 0..2 {
            let Some(orthonormal) = orthonormal(&columns)? else { return Ok(None) };
            columns = orthonormal;
        }
        basis = columns.flatten_all()?.to_vec1()?;
        after()?;
    }
    Ok(Some(basis))
}

/// Orthonormal columns that span the same space: `Y R^-1`, where `R^T R = Y^T Y`; `None` if the columns are
/// linearly dependent.
fn orthonormal(columns: &Tensor) -> Result<Option<Tensor>> {
    let gram: Vec<Vec<f64>> = columns
        .t()?
        .matmul(columns)?
        .to_vec2::<f32>()?
        .into_iter()
        .map(|row| row.into_iter().map(f64::from).collect())
        .collect();
    let Some(lower) = cholesky(gram) else { return Ok(None) };
    let dimensions = lower.len();
    let inverse: Vec<f32> = inverted(&lower).into_iter().flatten().map(|value| value as f32).collect();
    let inverse = Tensor::from_vec(inverse, (dimensions, dimensions), &Device::Cpu)?;
    // R is the transpose of the lower triangle.
    Ok(Some(columns.matmul(&inverse.t()?)?))
}

/// The lower triangle L of `L L^T`; `None` for a matrix that is not positive definite, or only barely.
fn cholesky(mut matrix: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let largest = matrix.iter().enumerate().map(|(i, row)| row[i]).fold(0.0, f64::max);
    for i in 0..matrix.len() {
        for j in 0..=i {
            let sum: f64 = matrix[i][..j].iter().zip(&matrix[j][..j]).map(|(a, b)| a * b).sum();
            let rest = matrix[i][j] - sum;
            matrix[i][j] = if i != j {
                rest / matrix[j][j]
            } else if rest > f64::from(f32::EPSILON) * largest {
                rest.sqrt()
            } else {
                return None;
            };
        }
        matrix[i][i + 1..].fill(0.0);
    }
    Some(matrix)
}

/// Inverse of a lower triangular matrix.
fn inverted(lower: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let size = lower.len();
    let mut inverse = vec![vec![0.0; size]; size];
    for i in 0..size {
        let (before, rest) = inverse.split_at_mut(i);
        let row = &mut rest[0];
        for (factor, solved) in lower[i].iter().zip(before.iter()) {
            row.iter_mut().zip(solved).for_each(|(value, solved)| *value -= factor * solved);
        }
        row[i] += 1.0;
        for value in row.iter_mut() {
            *value /= lower[i][i];
        }
    }
    inverse
}
