//! Confidence in the difference between two models, by a bootstrap over examples and seeds together.
//!
//! Sellam et al., The MultiBERTs: BERT reproductions for robustness analysis (2022), section 4: each
//! replicate draws examples, the same for all models, and draws the seeds of each model separately.

use serde::Serialize;

use crate::rng::{Purpose, Stream};
use crate::scores::{Metric, Outcomes, mean, sample_std};

/// Sum of the quantiles of the normal distribution at 97.5 % and at 80 %: the size of a difference, in
/// standard errors, for which an interval of 95 % excludes zero four times in five.
const POWER: f64 = 1.959_963_984_540_054 + 0.841_621_233_572_914;

/// Number of seeds that it takes to distinguish two models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SeedsNeeded {
    /// This number of seeds for each model, if the difference is as large as the one found.
    Seeds(u64),
    /// No number of seeds is enough: it takes more evaluation examples.
    MoreExamples,
    /// Unknown, because a single seed does not show how much seeds differ.
    Unknown,
}

/// The score of one model minus that of another, both means over seeds; NaN if a score was not measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    /// The difference that was found.
    pub difference: f64,
    /// Lower end of its 95 % interval, by percentiles.
    pub low: f64,
    /// Upper end of its 95 % interval.
    pub high: f64,
    /// Standard deviation of the difference over the replicates.
    pub standard_error: f64,
    /// Two-sided p-value: twice the share of replicates on the other side of zero.
    pub p_value: f64,
    /// Number of seeds for which the interval excludes zero with a probability of 80 %.
    pub seeds_needed: SeedsNeeded,
}

impl Difference {
    /// Returns true if the interval excludes zero.
    pub fn is_clear(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// Scores of several models on the same resampled examples.
pub struct Resampled {
    /// Score on all examples, for each model and seed.
    scores: Vec<Vec<f64>>,
    /// For each replicate and model: the mean score over the seeds that were drawn, and over all seeds.
    replicates: Vec<Vec<(f64, f64)>>,
}

impl Resampled {
    /// Draws `count` samples. `models` has the outcomes of each model, one for each of its seeds.
    ///
    /// # Panics
    /// If a model has no outcomes, or if the outcomes have different numbers of examples.
    pub fn new(models: &[Vec<Outcomes>], metric: Metric, count: u64, seed: u64) -> Self {
        let examples = models.iter().flatten().next().map_or(0, Outcomes::len) as u64;
        let answer_all = models.iter().flatten().all(|outcomes| outcomes.len() as u64 == examples);
        assert!(answer_all, "all models answer the same examples");
        let scores = models.iter().map(|seeds| seeds.iter().map(|one| one.score(metric)).collect()).collect();
        let replicates = (0..count).map(|number| replicate(models, metric, examples, seed, number)).collect();
        Self { scores, replicates }
    }

    /// The score of model `left` minus that of model `right`.
    pub fn difference(&self, left: usize, right: usize) -> Difference {
        let difference = mean(&self.scores[left]) - mean(&self.scores[right]);
        if difference.is_nan() {
            return Difference {
                difference,
                low: f64::NAN,
                high: f64::NAN,
                standard_error: f64::NAN,
                p_value: f64::NAN,
                seeds_needed: SeedsNeeded::Unknown,
            };
        }
        let mut drawn = self.differences(left, right, |means| means.0);
        let over_all_seeds = self.differences(left, right, |means| means.1);
        drawn.sort_by(f64::total_cmp);
        let not_above = drawn.iter().filter(|&&value| value <= 0.0).count();
        let not_below = drawn.iter().filter(|&&value| value >= 0.0).count();
        let fewer = not_above.min(not_below);
        Difference {
            difference,
            low: quantile(&drawn, 0.025),
            high: quantile(&drawn, 0.975),
            standard_error: sample_std(&drawn),
            p_value: (2.0 * (fewer + 1) as f64 / (drawn.len() + 1) as f64).min(1.0),
            seeds_needed: self.seeds_needed(difference, left, right, sample_std(&over_all_seeds)),
        }
    }

    /// Differences of two models in all replicates. A replicate without a score is left out: for example, a
    /// sample of equal numbers has no correlation.
    fn differences(&self, left: usize, right: usize, part: fn(&(f64, f64)) -> f64) -> Vec<f64> {
        let differences = self.replicates.iter().map(|models| part(&models[left]) - part(&models[right]));
        differences.filter(|difference| !difference.is_nan()).collect()
    }

    /// Number of seeds for which the interval excludes zero with a probability of 80 %. `examples_error` is
    /// the standard error that comes from the choice of examples alone.
    fn seeds_needed(&self, difference: f64, left: usize, right: usize, examples_error: f64) -> SeedsNeeded {
        let scores = [&self.scores[left], &self.scores[right]];
        // Models without randomness, such as a dictionary, have no seeds.
        if scores.iter().all(|of| of.len() < 2) {
            return SeedsNeeded::Unknown;
        }
        let seeds_variance: f64 = scores.iter().map(|of| sample_std(of).powi(2)).sum();
        let left_to_seeds = (difference / POWER).powi(2) - examples_error.powi(2);
        if left_to_seeds <= 0.0 {
            return SeedsNeeded::MoreExamples;
        }
        // A standard deviation needs two seeds.
        SeedsNeeded::Seeds((seeds_variance / left_to_seeds).ceil().max(2.0) as u64)
    }
}

/// For each model, the mean score on one sample of examples: over seeds that are drawn, and over all seeds.
fn replicate(
    models: &[Vec<Outcomes>],
    metric: Metric,
    examples: u64,
    seed: u64,
    number: u64,
) -> Vec<(f64, f64)> {
    let stream = Stream::new(seed, Purpose::Bootstrap, number);
    let sample: Vec<u32> = (0..examples).map(|at| stream.below(at, examples) as u32).collect();
    let mut means = Vec::with_capacity(models.len());
    for (model, outcomes) in models.iter().enumerate() {
        let scores: Vec<f64> = outcomes.iter().map(|one| one.score_of(metric, &sample)).collect();
        let stream = Stream::new(seed, Purpose::Bootstrap, (model as u64 + 1) << 32 | number);
        let drawn = (0..scores.len() as u64).map(|at| stream.below(at, scores.len() as u64) as usize);
        means.push((mean(&drawn.map(|at| scores[at]).collect::<Vec<f64>>()), mean(&scores)));
    }
    means
}

/// The quantile of sorted values at this share, interpolated as by numpy; NaN without values.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = share * last as f64;
    let below = sorted[place.floor() as usize];
    let above = sorted[place.ceil() as usize];
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn right_where(is_right: impl Fn(u32) -> bool, examples: u32) -> Outcomes {
        let predicted: Vec<u32> = (0..examples).map(|at| u32::from(is_right(at))).collect();
        Outcomes::labels(2, &vec![1; examples as usize], &predicted)
    }

    fn assert_near(found: f64, wanted: f64, tolerance: f64) {
        assert!((found - wanted).abs() < tolerance, "{found}, not {wanted}");
    }

    /// The standard error of a mean of n paired differences is their standard deviation (divisor n) over the
    /// root of n.
    #[test]
    fn over_examples_the_error_is_that_of_a_mean() {
        let left = right_where(|at| at % 10 < 8, 400);
        let right = right_where(|at| at % 10 < 7, 400);
        let found = Resampled::new(&[vec![left], vec![right]], Metric::Accuracy, 4000, 1).difference(0, 1);
        assert_near(found.difference, 0.1, 1e-12);
        assert_near(found.standard_error, (0.1_f64 * 0.9 / 400.0).sqrt(), 0.0006);
        assert!(found.is_clear() && found.p_value < 0.01 && found.seeds_needed == SeedsNeeded::Unknown);
    }

    /// Each seed gives the same answer to all examples, so only the choice of seeds matters: `p (1 - p) /
    /// seeds`.
    #[test]
    fn over_seeds_the_error_is_that_of_a_mean_of_seeds() {
        let seeds: Vec<Outcomes> = [true, true, true, false].map(|is| right_where(|_| is, 20)).into();
        let found = Resampled::new(&[seeds, vec![right_where(|_| false, 20)]], Metric::Accuracy, 4000, 1);
        let found = found.difference(0, 1);
        assert_near(found.difference, 0.75, 1e-12);
        assert_near(found.standard_error, (0.75_f64 * 0.25 / 4.0).sqrt(), 0.008);
        // The sample variance of the seeds is 0.25 and the examples add nothing: 0.25 x 2.8016^2 / 0.75^2 =
        // 3.49.
        assert_eq!(found.seeds_needed, SeedsNeeded::Seeds(4));
    }

    #[test]
    fn equal_models_are_not_distinguished() {
        let model = vec![right_where(|at| at % 3 > 0, 90), right_where(|at| at % 4 > 0, 90)];
        let found = Resampled::new(&[model.clone(), model], Metric::Accuracy, 1000, 1).difference(0, 1);
        assert!(!found.is_clear() && found.p_value > 0.3, "{found:?}");
        assert_eq!(found.seeds_needed, SeedsNeeded::MoreExamples);
    }

    #[test]
    fn a_score_that_is_not_measured_has_no_difference() {
        let gold = one_column([0.0, 1.0, 2.0, 3.0]);
        let predicted = one_column([0.0, 2.0, 1.0, 3.0]);
        let model = vec![Outcomes::Numbers { gold: gold.clone(), predicted }];
        let constant = vec![Outcomes::Numbers { gold, predicted: one_column([1.0; 4]) }];
        let found = Resampled::new(&[model.clone(), constant, model], Metric::Pearson, 200, 1);
        let undefined = found.difference(0, 1);
        assert!(undefined.difference.is_nan() && undefined.p_value.is_nan() && !undefined.is_clear());
        assert_eq!(serde_json::to_value(undefined).unwrap()["difference"], Value::Null);
        // Samples that draw one example four times have no correlation, and are left out.
        let same = found.difference(0, 2);
        assert!(same.low.is_finite() && same.standard_error.abs() < 1e-12, "{same:?}");
    }

    /// `scripts/make_bootstrap_golden.py` wrote the results of `scipy.stats.bootstrap` for paired examples.
    #[test]
    fn intervals_are_those_of_scipy() {
        let golden: Value =
            serde_json::from_str(include_str!("../../../tests/golden/bootstrap.json")).unwrap();
        for case in golden["cases"].as_array().unwrap() {
            let metric: Metric = serde_json::from_value(case["metric"].clone()).unwrap();
            let models = ["left", "right"].map(|key| {
                let gold = one_column(numbers(case, "gold"));
                vec![Outcomes::Numbers { gold, predicted: one_column(numbers(case, key)) }]
            });
            let found = Resampled::new(&models, metric, 8000, 3).difference(0, 1);
            let error = case["standard_error"].as_f64().unwrap();
            assert_near(found.difference, case["difference"].as_f64().unwrap(), 1e-5);
            // The ends of an interval are exact to a few hundredths of the standard error.
            assert_near(found.standard_error, error, 0.03 * error);
            assert_near(found.low, case["low"].as_f64().unwrap(), 0.12 * error);
            assert_near(found.high, case["high"].as_f64().unwrap(), 0.12 * error);
        }
    }

    fn numbers(case: &Value, key: &str) -> Vec<f32> {
        case[key].as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect()
    }

    /// Examples with a single number each.
    fn one_column(values: impl IntoIterator<Item = f32>) -> Vec<Vec<f32>> {
        values.into_iter().map(|value| vec![value]).collect()
    }
}
