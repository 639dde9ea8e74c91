//! How sure the difference between two models is: a bootstrap over examples and seeds together.
//!
//! Sellam et al., The MultiBERTs: BERT reproductions for robustness analysis (2022), section 4: each
//! replicate draws the examples, the same for all models, and the seeds of each model on its own.

use serde::Serialize;

use crate::rng::Purpose;
use crate::rng::Stream;
use crate::scores::Metric;
use crate::scores::Outcomes;
use crate::scores::mean;
use crate::scores::sample_std;

/// The normal distribution's quantiles at 97.5 % and at 80 %: what a difference must be in standard errors,
/// so that an interval of 95 % leaves out zero four times in five.
const POWER: f64 = 1.959_963_984_540_054 + 0.841_621_233_572_914;

/// How many seeds it would take to tell two models apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SeedsNeeded {
    /// So many of each model, for a difference as large as the one found.
    Seeds(u64),
    /// No number of seeds: it needs more evaluation examples.
    MoreExamples,
    /// One seed tells nothing of how seeds differ.
    Unknown,
}

/// The score of one model less that of another, means over seeds; NaN where a score is not measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    /// As found.
    pub difference: f64,
    /// The lower end of its interval of 95 %, by percentiles.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The standard deviation of the replicates.
    pub standard_error: f64,
    /// Share of replicates on the other side of zero, twice: two-sided.
    pub p_value: f64,
    /// For the interval to leave out zero with a probability of 80 %.
    pub seeds_needed: SeedsNeeded,
}

impl Difference {
    /// Whether the interval leaves out zero.
    pub fn is_clear(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// Scores of several models on the same resampled examples.
pub struct Resampled {
    /// Of each model, each seed: the score of all examples.
    scores: Vec<Vec<f64>>,
    /// Of each replicate, each model: the mean over seeds that were drawn, and over all of them.
    replicates: Vec<Vec<(f64, f64)>>,
}

impl Resampled {
    /// Draws `count` samples for models that are given by their outcomes with each seed.
    ///
    /// # Panics
    /// Where a model has no outcomes, or two have other examples.
    pub fn new(models: &[Vec<Outcomes>], metric: Metric, count: u64, seed: u64) -> Self {
        let all = || models.iter().flatten();
        let examples = all().next().map_or(0, Outcomes::len) as u64;
        assert!(all().all(|of| of.len() as u64 == examples), "all models answer the same examples");
        let scores = models.iter().map(|of| of.iter().map(|one| one.score(metric)).collect()).collect();
        let replicate = |number: u64| {
            let stream = Stream::new(seed, Purpose::Bootstrap, number);
            let sample: Vec<u32> = (0..examples).map(|at| stream.below(at, examples) as u32).collect();
            let of_model = |(model, outcomes): (usize, &Vec<Outcomes>)| {
                let scores: Vec<f64> = outcomes.iter().map(|of| of.score_of(metric, &sample)).collect();
                let stream = Stream::new(seed, Purpose::Bootstrap, (model as u64 + 1) << 32 | number);
                let drawn = (0..scores.len() as u64).map(|at| stream.below(at, scores.len() as u64) as usize);
                (mean(&drawn.map(|at| scores[at]).collect::<Vec<f64>>()), mean(&scores))
            };
            models.iter().enumerate().map(of_model).collect()
        };
        Self { scores, replicates: (0..count).map(replicate).collect() }
    }

    /// The score of model `left` less that of model `right`.
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
        // A sample may have no score, such as one of equal numbers no correlation: it tells nothing.
        let of = |part: fn(&(f64, f64)) -> f64| -> Vec<f64> {
            let differences = self.replicates.iter().map(|models| part(&models[left]) - part(&models[right]));
            differences.filter(|difference| !difference.is_nan()).collect()
        };
        let (mut drawn, of_examples) = (of(|means| means.0), of(|means| means.1));
        drawn.sort_by(f64::total_cmp);
        let beyond = |is_beyond: fn(&f64) -> bool| drawn.iter().filter(|value| is_beyond(value)).count();
        let fewer = beyond(|value| *value <= 0.0).min(beyond(|value| *value >= 0.0));
        Difference {
            difference,
            low: quantile(&drawn, 0.025),
            high: quantile(&drawn, 0.975),
            standard_error: sample_std(&drawn),
            p_value: (2.0 * (fewer + 1) as f64 / (drawn.len() + 1) as f64).min(1.0),
            seeds_needed: self.seeds_needed(difference, left, right, sample_std(&of_examples)),
        }
    }

    fn seeds_needed(&self, difference: f64, left: usize, right: usize, of_examples: f64) -> SeedsNeeded {
        let scores = [&self.scores[left], &self.scores[right]];
        // What is computed without chance, such as a dictionary, has no seeds.
        if scores.iter().all(|of| of.len() < 2) {
            return SeedsNeeded::Unknown;
        }
        let of_seeds: f64 = scores.iter().map(|of| sample_std(of).powi(2)).sum();
        let left_to_seeds = (difference / POWER).powi(2) - of_examples.powi(2);
        if left_to_seeds <= 0.0 {
            return SeedsNeeded::MoreExamples;
        }
        // A standard deviation takes two.
        SeedsNeeded::Seeds((of_seeds / left_to_seeds).ceil().max(2.0) as u64)
    }
}

/// The value below which this share of sorted values lies, interpolated as numpy does.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = share * last as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
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

    fn near(found: f64, wanted: f64, tolerance: f64) {
        assert!((found - wanted).abs() < tolerance, "{found}, not {wanted}");
    }

    /// The standard error of a mean of n paired differences: their deviation (divisor n) over the root of n.
    #[test]
    fn over_examples_the_error_is_that_of_a_mean() {
        let (left, right) = (right_where(|at| at % 10 < 8, 400), right_where(|at| at % 10 < 7, 400));
        let found = Resampled::new(&[vec![left], vec![right]], Metric::Accuracy, 4000, 1).difference(0, 1);
        near(found.difference, 0.1, 1e-12);
        near(found.standard_error, (0.1_f64 * 0.9 / 400.0).sqrt(), 0.0006);
        assert!(found.is_clear() && found.p_value < 0.01 && found.seeds_needed == SeedsNeeded::Unknown);
    }

    /// Seeds that answer all alike: only which of them are drawn counts, `p (1 - p) / seeds`.
    #[test]
    fn over_seeds_the_error_is_that_of_a_mean_of_seeds() {
        let seeds: Vec<Outcomes> = [true, true, true, false].map(|is| right_where(|_| is, 20)).into();
        let found = Resampled::new(&[seeds, vec![right_where(|_| false, 20)]], Metric::Accuracy, 4000, 1);
        let found = found.difference(0, 1);
        near(found.difference, 0.75, 1e-12);
        near(found.standard_error, (0.75_f64 * 0.25 / 4.0).sqrt(), 0.008);
        // Sample variance 0.25, nothing left to the examples: 0.25 x 2.8016^2 / 0.75^2 = 3.49.
        assert_eq!(found.seeds_needed, SeedsNeeded::Seeds(4));
    }

    #[test]
    fn models_that_are_the_same_are_not_told_apart() {
        let model = || vec![right_where(|at| at % 3 > 0, 90), right_where(|at| at % 4 > 0, 90)];
        let found = Resampled::new(&[model(), model()], Metric::Accuracy, 1000, 1).difference(0, 1);
        assert!(!found.is_clear() && found.p_value > 0.3, "{found:?}");
        assert_eq!(found.seeds_needed, SeedsNeeded::MoreExamples);
    }

    #[test]
    fn a_score_that_is_not_measured_has_no_difference() {
        let rows = |values: [f32; 4]| values.map(|value| vec![value]).to_vec();
        let gold = [0.0, 1.0, 2.0, 3.0];
        let of = |predicted| vec![Outcomes::Numbers { gold: rows(gold), predicted: rows(predicted) }];
        let (model, constant) = (of([0.0, 2.0, 1.0, 3.0]), of([1.0; 4]));
        let found = Resampled::new(&[model.clone(), constant, model], Metric::Pearson, 200, 1);
        let undefined = found.difference(0, 1);
        assert!(undefined.difference.is_nan() && undefined.p_value.is_nan() && !undefined.is_clear());
        assert_eq!(serde_json::to_value(undefined).unwrap()["difference"], Value::Null);
        // Samples of one example four times have no correlation, and do not count.
        let same = found.difference(0, 2);
        assert!(same.low.is_finite() && same.standard_error.abs() < 1e-12, "{same:?}");
    }

    /// `scripts/make_bootstrap_golden.py` wrote what `scipy.stats.bootstrap` says of paired examples.
    #[test]
    fn intervals_are_those_of_scipy() {
        let golden: Value =
            serde_json::from_str(include_str!("../../../tests/golden/bootstrap.json")).unwrap();
        let numbers = |case: &Value, key: &str| -> Vec<f64> {
            case[key].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
        };
        for case in golden["cases"].as_array().unwrap() {
            let metric: Metric = serde_json::from_value(case["metric"].clone()).unwrap();
            let outcomes = |key: &str| {
                let rows = |values: Vec<f64>| values.into_iter().map(|v| vec![v as f32]).collect::<Vec<_>>();
                Outcomes::Numbers { gold: rows(numbers(case, "gold")), predicted: rows(numbers(case, key)) }
            };
            let models = [vec![outcomes("left")], vec![outcomes("right")]];
            let found = Resampled::new(&models, metric, 8000, 3).difference(0, 1);
            let error = case["standard_error"].as_f64().unwrap();
            near(found.difference, case["difference"].as_f64().unwrap(), 1e-5);
            // The ends of an interval are known to a few hundredths of the standard error.
            near(found.standard_error, error, 0.03 * error);
            near(found.low, case["low"].as_f64().unwrap(), 0.12 * error);
            near(found.high, case["high"].as_f64().unwrap(), 0.12 * error);
        }
    }
}
