//! L2-regularised linear regression over sparse rows, equivalent to scikit-learn's `Ridge`.
//!
//! Minimises `sum_i (y_i - w x_i - b)^2 + A |w|^2` over weights `w` and a bias; the bias is not regularised.

use crate::tasks::floors::lbfgs::minimise;
use crate::tasks::floors::logistic::Row;
use base::scores::mean;

/// Strength of the regularisation, scikit-learn's default.
const ALPHA: f64 = 1.0;

/// Largest entry of the gradient of the mean loss at which the minimisation stops.
const TOLERANCE: f64 = 1e-8;

/// Most steps; a few dozen are usual.
const MOST_STEPS: usize = 500;

/// A trained model: weights of the features and then the bias.
pub(super) struct Ridge {
    parameters: Vec<f64>,
}

impl Ridge {
    /// Trains on rows with this number of `features`.
    pub(super) fn fit(rows: &[Row], numbers: &[f64], features: usize) -> Self {
        let examples = rows.len() as f64;
        let objective = |parameters: &[f64], gradient: &mut [f64]| {
            gradient.fill(0.0);
            let mut value = 0.0;
            for (row, number) in rows.iter().zip(numbers) {
                let error = predict(parameters, row) - number;
                value += error * error / examples;
                let slope = 2.0 * error / examples;
                for &(at, value) in row {
                    gradient[at as usize] += slope * value;
                }
                gradient[features] += slope;
            }
            for at in 0..features {
                value += ALPHA / examples * parameters[at] * parameters[at];
                gradient[at] += 2.0 * ALPHA / examples * parameters[at];
            }
            value
        };
        let mut start = vec![0.0; features + 1];
        start[features] = mean(numbers);
        Self { parameters: minimise(objective, start, TOLERANCE, MOST_STEPS) }
    }

    /// Returns the predicted number of a row.
    pub(super) fn number(&self, row: &Row) -> f64 {
        predict(&self.parameters, row)
    }
}

fn predict(parameters: &[f64], row: &Row) -> f64 {
    let bias = parameters.last().copied().unwrap_or(0.0);
    row.iter().map(|&(at, value)| parameters[at as usize] * value).sum::<f64>() + bias
}
