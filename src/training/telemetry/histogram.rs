//! Histograms of a model's weights, over a sample of them and with TensorBoard's buckets.

/// Upper end of the smallest bucket of positive values.
const SMALLEST: f64 = 1e-12;
/// Ratio of the upper ends of two neighbouring buckets.
const GROWTH: f64 = 1.1;

/// Largest number of values of one part that are sampled, evenly spaced. It is enough for a plot.
pub const SAMPLE: usize = 1 << 16;

/// The distribution of the values of one part of a model at one step.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Number of values.
    pub num: f64,
    /// Their sum.
    pub sum: f64,
    /// The sum of their squares.
    pub sum_squares: f64,
    /// The upper end of each bucket that is not empty, and the number of values in it.
    pub buckets: Vec<(f64, f64)>,
}

impl Histogram {
    /// Returns the histogram of the finite values; `None` if there are none.
    pub fn of(values: impl Iterator<Item = f32>) -> Option<Self> {
        let mut values: Vec<f64> = values.map(f64::from).filter(|value| value.is_finite()).collect();
        values.sort_unstable_by(f64::total_cmp);
        let min = *values.first()?;
        let max = *values.last()?;
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for &value in &values {
            let limit = upper_end(value);
            match buckets.last_mut() {
                Some((last, count)) if *last >= limit => *count += 1.0,
                _ => buckets.push((limit, 1.0)),
            }
        }
        Some(Self {
            min,
            max,
            num: values.len() as f64,
            sum: values.iter().sum(),
            sum_squares: values.iter().map(|value| value * value).sum(),
            buckets,
        })
    }
}

/// Returns the upper end of the bucket of a value: the end away from zero for a positive value, the end next
/// to zero for a negative one.
fn upper_end(value: f64) -> f64 {
    let power = (value.abs().max(SMALLEST) / SMALLEST).ln() / GROWTH.ln();
    if value < 0.0 { -SMALLEST * GROWTH.powf(power.floor()) } else { SMALLEST * GROWTH.powf(power.ceil()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_contain_all_values_up_to_their_upper_ends() {
        let values = [-3.0, -1e-3, 0.0, 0.5, 0.51, 0.9, 7.0, f32::NAN];
        let histogram = Histogram::of(values.into_iter()).unwrap();
        assert_eq!((histogram.min, histogram.max, histogram.num), (-3.0, 7.0, 7.0));
        let finite = values.iter().filter(|value| value.is_finite()).map(|&value| f64::from(value));
        assert!((histogram.sum - finite.clone().sum::<f64>()).abs() < 1e-12);
        assert!(histogram.buckets.windows(2).all(|pair| pair[0].0 < pair[1].0), "{histogram:?}");
        assert_eq!(histogram.buckets.iter().map(|(_, count)| count).sum::<f64>() as u64, 7);
        for (limit, _) in &histogram.buckets {
            let below = finite.clone().filter(|value| value <= limit).count() as f64;
            let counted: f64 =
                histogram.buckets.iter().filter(|(end, _)| end <= limit).map(|(_, count)| count).sum();
            assert!((below - counted).abs() < 0.5, "{limit}: {below} {counted}");
        }
        assert_eq!(Histogram::of([f32::NAN].into_iter()), None);
    }
}
