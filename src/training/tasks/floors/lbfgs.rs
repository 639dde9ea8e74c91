//! Minimises a smooth convex function by L-BFGS with a backtracking line search.
//!
//! Nocedal and Wright, Numerical Optimization (2006), algorithms 7.4 (two-loop recursion) and 3.1.

use std::collections::VecDeque;

/// Number of corrections that are kept.
const HISTORY: usize = 8;

/// The fraction of the predicted decrease that a step has to achieve (Armijo condition).
const DECREASE: f64 = 1e-4;

/// Most halvings of a step; beyond them only rounding errors remain.
const MOST_HALVINGS: u32 = 40;

/// Returns the first point, starting at `start`, where all entries of the gradient are at most `tolerance`,
/// or the last point after `most_steps` steps. `function` writes the gradient at a point and returns the
/// value there.
pub(super) fn minimise(
    mut function: impl FnMut(&[f64], &mut [f64]) -> f64,
    start: Vec<f64>,
    tolerance: f64,
    most_steps: usize,
) -> Vec<f64> {
    let mut point = start;
    let mut gradient = vec![0.0; point.len()];
    let mut value = function(&point, &mut gradient);
    let mut history: VecDeque<Correction> = VecDeque::with_capacity(HISTORY);
    for _ in 0..most_steps {
        if gradient.iter().all(|slope| slope.abs() <= tolerance) {
            break;
        }
        let direction = descent(&gradient, &history);
        let slope = dot(&gradient, &direction);
        // Without a history, the length of the gradient does not suggest a step size.
        let mut length =
            if history.is_empty() { 1.0 / dot(&gradient, &gradient).sqrt().max(1.0) } else { 1.0 };
        let mut next = vec![0.0; point.len()];
        let mut next_gradient = vec![0.0; point.len()];
        let mut next_value = f64::INFINITY;
        for _ in 0..MOST_HALVINGS {
            next.iter_mut().zip(point.iter().zip(&direction)).for_each(|(n, (p, d))| *n = p + length * d);
            next_value = function(&next, &mut next_gradient);
            if next_value <= value + DECREASE * length * slope {
                break;
            }
            length /= 2.0;
        }
        if next_value >= value {
            break;
        }
        let step: Vec<f64> = next.iter().zip(&point).map(|(new, old)| new - old).collect();
        let change: Vec<f64> = next_gradient.iter().zip(&gradient).map(|(new, old)| new - old).collect();
        let curvature = dot(&step, &change);
        if curvature > f64::EPSILON * dot(&change, &change) {
            if history.len() == HISTORY {
                history.pop_front();
            }
            history.push_back(Correction { step, change, curvature });
        }
        point = next;
        gradient = next_gradient;
        value = next_value;
    }
    point
}

/// A step that was taken, and the change of the gradient over it.
struct Correction {
    step: Vec<f64>,
    change: Vec<f64>,
    /// Dot product of `step` and `change`, above 0.
    curvature: f64,
}

/// Direction of descent: the negative gradient times the inverse curvature that is estimated from the
/// history.
fn descent(gradient: &[f64], history: &VecDeque<Correction>) -> Vec<f64> {
    let mut direction: Vec<f64> = gradient.iter().map(|slope| -slope).collect();
    let mut shares = Vec::with_capacity(history.len());
    for correction in history.iter().rev() {
        let share = dot(&correction.step, &direction) / correction.curvature;
        add(&mut direction, &correction.change, -share);
        shares.push(share);
    }
    if let Some(last) = history.back() {
        let scale = last.curvature / dot(&last.change, &last.change);
        for entry in &mut direction {
            *entry *= scale;
        }
    }
    for (correction, share) in history.iter().zip(shares.into_iter().rev()) {
        let back = dot(&correction.change, &direction) / correction.curvature;
        add(&mut direction, &correction.step, share - back);
    }
    direction
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(l, r)| l * r).sum()
}

/// Adds `times * what` to `to`.
fn add(to: &mut [f64], what: &[f64], times: f64) {
    to.iter_mut().zip(what).for_each(|(t, w)| *t += times * w);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Minimises `sum_i i (x_i - 1)^2 / 2 + (sum_i x_i - n)^4`, whose minimum is at 1.
    #[test]
    fn the_minimum_of_an_uneven_bowl_is_found() {
        let n = 30;
        let bowl = |x: &[f64], gradient: &mut [f64]| {
            let rest = x.iter().sum::<f64>() - n as f64;
            let mut value = rest.powi(4);
            for (index, (x, slope)) in x.iter().zip(gradient).enumerate() {
                let weight = (index + 1) as f64;
                value += weight * (x - 1.0).powi(2) / 2.0;
                *slope = weight * (x - 1.0) + 4.0 * rest.powi(3);
            }
            value
        };
        let found = minimise(bowl, vec![0.0; n], 1e-9, 500);
        assert!(found.iter().all(|x| (x - 1.0).abs() < 1e-8), "{found:?}");
    }
}
