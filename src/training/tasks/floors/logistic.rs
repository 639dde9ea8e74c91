//! L2-regularised logistic regression over sparse rows, equivalent to scikit-learn's `LogisticRegression`.
//!
//! Minimises `sum_i loss_i + |W|^2 / (2 C)` over weights `W` and biases; biases are not regularised. The loss
//! is the cross-entropy of a softmax; for two classes it is that of a sigmoid with one row of weights.

use crate::tasks::floors::lbfgs::minimise;

/// Inverse strength of the regularisation, scikit-learn's default.
const C: f64 = 1.0;

/// Largest entry of the gradient of the mean loss at which the minimisation stops.
const TOLERANCE: f64 = 1e-6;

/// Most steps; a few dozen are usual.
const MOST_STEPS: usize = 500;

/// A sparse row: ascending indices of its features, with their values.
pub(super) type Row = Vec<(u32, f64)>;

/// A trained model. For each class (with two classes only for the second one), `parameters` has the weights
/// of the features and then the bias.
pub(super) struct Logistic {
    parameters: Vec<f64>,
    features: usize,
    classes: usize,
}

impl Logistic {
    /// Trains on rows with this number of `features`; ids of classes are below `classes`.
    pub(super) fn fit(rows: &[Row], ids: &[u32], features: usize, classes: usize) -> Self {
        let outputs = if classes == 2 { 1 } else { classes };
        let width = features + 1;
        let examples = rows.len() as f64;
        let strength = 1.0 / (C * examples);
        let objective = |parameters: &[f64], gradient: &mut [f64]| {
            gradient.fill(0.0);
            let mut value = 0.0;
            for (row, &id) in rows.iter().zip(ids) {
                let mut scores = scores(parameters, row, width, outputs);
                value += loss_and_slopes(&mut scores, id as usize) / examples;
                for (output, slope) in scores.iter().enumerate() {
                    let slope = slope / examples;
                    let gradient = &mut gradient[output * width..(output + 1) * width];
                    for &(at, value) in row {
                        gradient[at as usize] += slope * value;
                    }
                    gradient[features] += slope;
                }
            }
            for output in 0..outputs {
                for at in output * width..output * width + features {
                    value += strength * parameters[at] * parameters[at] / 2.0;
                    gradient[at] += strength * parameters[at];
                }
            }
            value
        };
        let parameters = minimise(objective, vec![0.0; width * outputs], TOLERANCE, MOST_STEPS);
        Self { parameters, features, classes }
    }

    /// Returns the probability of each class.
    pub(super) fn probabilities(&self, row: &Row) -> Vec<f64> {
        let outputs = if self.classes == 2 { 1 } else { self.classes };
        let mut scores = scores(&self.parameters, row, self.features + 1, outputs);
        if self.classes == 2 {
            scores.insert(0, 0.0);
        }
        softmax(&mut scores);
        scores
    }
}

/// The score of each output: weights times features, plus the bias.
fn scores(parameters: &[f64], row: &Row, width: usize, outputs: usize) -> Vec<f64> {
    let weights = parameters.chunks_exact(width).take(outputs);
    let products = weights.map(|weights| {
        row.iter().map(|&(at, value)| weights[at as usize] * value).sum::<f64>() + weights[width - 1]
    });
    products.collect()
}

/// Returns the loss of an example of class `id`, and replaces each score by the derivative of the loss with
/// respect to it.
fn loss_and_slopes(scores: &mut [f64], id: usize) -> f64 {
    if let [score] = scores {
        // log(1 + exp(-s)) of the score with the sign of the class, without overflow.
        let signed = if id == 1 { *score } else { -*score };
        let loss = (-signed.abs()).exp().ln_1p() + (-signed).max(0.0);
        let probability = 1.0 / (1.0 + (-*score).exp());
        *score = probability - id as f64;
        return loss;
    }
    let target = scores[id];
    let log_sum = softmax(scores);
    scores[id] -= 1.0;
    log_sum - target
}

/// Turns scores into probabilities; returns the logarithm of the sum of their exponentials.
fn softmax(scores: &mut [f64]) -> f64 {
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    for score in &mut *scores {
        *score = (*score - largest).exp();
    }
    let sum: f64 = scores.iter().sum();
    for score in scores {
        *score /= sum;
    }
    largest + sum.ln()
}
