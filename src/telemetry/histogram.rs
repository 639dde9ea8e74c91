//! How the weights of a part of a model are spread: a sample of them in the buckets that TensorBoard has.

/// The smallest bound of a bucket, and how much each is above the one before it.
const SMALLEST: f64 = 1e-12;
const GROWTH: f64 = 1.1;

/// Most values of a part that are looked at, evenly spaced: enough for a picture.
pub const SAMPLE: usize = 1 << 16;

/// The values of one part at one step.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// How many values.
    pub num: f64,
    /// Their sum.
    pub sum: f64,
    /// The sum of their squares.
    pub sum_squares: f64,
    /// The upper end of each bucket, and how many values are in it.
    pub buckets: Vec<(f64, f64)>,
}

impl Histogram {
    /// The histogram of these values; none where there is no finite one.
    pub fn of(values: impl Iterator<Item = f32>) -> Option<Self> {
        let mut values: Vec<f64> = values.map(f64::from).filter(|value| value.is_finite()).collect();
        values.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
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

/// The end of the bucket of a value, away from zero for positive ones and towards it for negative ones.
fn upper_end(value: f64) -> f64 {
    let power = (value.abs().max(SMALLEST) / SMALLEST).ln() / GROWTH.ln();
    if value < 0.0 { -SMALLEST * GROWTH.powf(power.floor()) } else { SMALLEST * GROWTH.powf(power.ceil()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_all_values_below_their_ends() {
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
